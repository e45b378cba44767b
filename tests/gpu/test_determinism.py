"""On one device the same inputs give the same bits; other devices give the same numbers but for rounding."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustfeatures.attacks import invert, pgd
from robustfeatures.attacks.carlini_wagner import carlini_wagner
from robustfeatures.attacks.evaluating.evaluation import EvaluatedSplit, evaluate_block
from robustfeatures.attacks.evaluating.settings import PGD, Evaluation, Noise
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.engine.batches import InMemory, load_batches
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.settings import Precision
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.training.adversary import Attacker
from robustfeatures.training.augmentation import Augmenter
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Adversary, Augmentation, Training
from tests.conftest import Digits
from tests.engine.test_frozen_network import SMALL, lived_in

CPU = torch.device("cpu")
AUGMENTATION = Augmentation(crop_padding=1, flip=True, smallest_crop=0.5, rotation=5.0, colour_jitter=0.2)
SETTINGS = Training(epochs=2, batch_size=32, learning_rate=0.05, weight_decay=5e-4)
ADVERSARY = Adversary(norm="l2", eps=0.5, step_size=0.2, steps=3, random_start=True)


def fresh(device: torch.device) -> tuple[Network, Tensor, Tensor]:
    """A narrow ResNet-18 before training, with random images and their labels."""
    torch.manual_seed(0)
    network = create("resnet18", num_classes=4, image_shape=(3, 16, 16), width=8)
    return network.to(device), torch.rand(100, 3, 16, 16).to(device), torch.arange(100, device=device) % 4


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_training_has_the_same_bits_again(device: torch.device, optimiser: str, precision: Precision) -> None:
    settings = replace(SETTINGS, augmentation=AUGMENTATION, adversary=ADVERSARY, optimiser=optimiser)  # type: ignore[arg-type]
    found = []
    for _ in range(2):
        network, images, labels = fresh(device)
        attacker = Attacker(network, ADVERSARY, precision)
        train(network, InMemory(images), labels, settings, seed=1, precision=precision, perturbation=attacker)
        found.append(network.state_dict())
    assert all(torch.equal(values, found[1][name]) for name, values in found[0].items())


def attack_all(network: Network, digits: Digits) -> list[Tensor]:
    """What each attack makes of some images."""
    frozen_network = FrozenNetwork(network)
    images, labels = digits.images[1000:1100], digits.labels[1000:1100]
    evaluation = Evaluation(
        split="test",
        norm="l2",
        eps=(0.2, 0.5),
        attacks=(
            PGD(kind="pgd", steps=5, relative_step_sizes=(0.2,), random_starts=1),
            Noise(kind="noise", draws=3),
        ),
    )
    split = EvaluatedSplit(frozen_network, InMemory(digits.images), digits.labels, 10)
    return [
        *(pgd(frozen_network, images, labels, norm=norm, eps=0.1, step_size=0.03, steps=5) for norm in ("l2", "linf")),
        invert(frozen_network, images, images.flip(0), step_size=0.1, steps=10),
        *carlini_wagner(frozen_network, images, labels, searches=2, steps=10),
        torch.from_numpy(evaluate_block(split, torch.arange(1000, 1100), evaluation).robust),
    ]


def test_attacks_have_the_same_bits_again(network: Network, digits: Digits) -> None:
    first, second = (attack_all(network, digits) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_attacks_are_those_of_the_processor(network: Network, digits: Digits) -> None:
    """In float64, because in float32 a rounding error at a ReLU sends an image another way."""
    there, here = copy.deepcopy(network).double(), copy.deepcopy(network).double().cpu()
    images, labels = digits.images[1000:1100].double(), digits.labels[1000:1100]
    for norm in ("l2", "linf"):
        arguments = {"norm": norm, "eps": 0.3, "step_size": 0.06, "steps": 10}
        found = pgd(there, images, labels, **arguments)  # type: ignore[arg-type]
        expected = pgd(here, images.cpu(), labels.cpu(), **arguments)  # type: ignore[arg-type]
        torch.testing.assert_close(found.cpu(), expected, atol=1e-8, rtol=0)
    found, expected = (
        invert(model, start, targets, step_size=0.02, steps=10)
        for model, start, targets in ((there, images, images.flip(0)), (here, images.cpu(), images.cpu().flip(0)))
    )
    torch.testing.assert_close(found.cpu(), expected, atol=1e-8, rtol=0)


def test_a_training_is_that_of_the_processor(device: torch.device) -> None:
    """Adversarial, in float64, which a frozen network does not have."""
    found = []
    for each in (CPU, device):
        network, images, labels = fresh(each)
        network.double()

        def perturb(images: Tensor, labels: Tensor, seed: int, network: Network = network) -> Tensor:
            return pgd(network, images, labels, norm="l2", eps=0.5, step_size=0.2, steps=3)

        settings = replace(SETTINGS, epochs=1)
        train(network, InMemory(images.double()), labels, settings, seed=1, perturbation=perturb)
        found.append(network.state_dict())
    for name, values in found[0].items():
        torch.testing.assert_close(found[1][name].cpu(), values, atol=1e-6, rtol=1e-6, msg=name)


@pytest.mark.parametrize("architecture", SMALL)
def test_logits_are_those_of_the_processor(device: torch.device, architecture: str) -> None:
    network = lived_in(architecture, SMALL[architecture], CPU)
    images = torch.rand(4, 3, 32, 32)
    with torch.no_grad():
        expected = network(images)
        torch.testing.assert_close(network.to(device)(images.to(device)).cpu(), expected, atol=2e-4, rtol=1e-3)


def test_augmented_images_are_those_of_the_processor(device: torch.device) -> None:
    images, rows = torch.rand(40, 3, 16, 16), torch.randperm(40)
    here, there = (Augmenter(AUGMENTATION, 40, torch.Generator().manual_seed(0), each) for each in (CPU, device))
    found = there(images.to(device), rows.to(device)).cpu()
    torch.testing.assert_close(found, here(images, rows), atol=1e-4, rtol=0)


def test_pixels_have_the_bits_of_the_processor(device: torch.device) -> None:
    """All 256 of them."""
    images = np.arange(256, dtype=np.uint8).reshape(4, 1, 8, 8)
    dataset = ImageDataset(images, np.zeros(4, np.int64), {}, ("a",))
    for memory_bytes in (0, 1 << 20):
        ((_, found),) = load_batches(dataset, device, memory_bytes=memory_bytes).batches(torch.arange(4), 4)
        assert torch.equal(found.cpu(), torch.from_numpy(dataset.float_images()))


def test_full_float32_is_used(device: torch.device) -> None:
    """A product with the ten bits of TF32 errs by a thousandth."""
    torch.manual_seed(0)
    left, right = torch.rand(256, 256), torch.rand(256, 256)
    exact = left.double() @ right.double()
    assert ((left.to(device) @ right.to(device)).cpu() / exact - 1).abs().max() < 1e-5
    convolution = nn.Conv2d(64, 64, 3, bias=False).requires_grad_(False)
    images = torch.rand(2, 64, 16, 16)
    exact = copy.deepcopy(convolution).double()(images.double())
    found = convolution.to(device)(images.to(device)).cpu()
    assert ((found - exact).abs().max() / exact.abs().max()) < 1e-5
