"""Foreign weights that others trained: the CIFAR-10 ResNet-18 in AutoAttack's examples, on real photographs."""

from __future__ import annotations

from importlib.resources import files

import pytest
import torch
from pyautoattack.autopgd_base import APGDAttack
from torch import Tensor, nn

from robustfeatures import load_model
from robustfeatures.attacks import pgd
from robustfeatures.attacks.evaluating.settings import PGD
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.models.network import Network
from tests.benchmarks.agreement import find_robust
from tests.photographs import photographs


@pytest.fixture(scope="module")
def published() -> Network:
    path = str(files("pyautoattack") / "examples" / "model_test.pt")
    return load_model(path, architecture="resnet18", num_classes=10, image_shape=(3, 32, 32))


@pytest.fixture(scope="module")
def real() -> tuple[Tensor, Tensor]:
    arrays = photographs(20)
    return torch.from_numpy(arrays["images"]).float() / 255, torch.from_numpy(arrays["labels"])


def test_it_is_as_accurate_as_a_trained_resnet18(published: Network, real: tuple[Tensor, Tensor]) -> None:
    images, labels = real
    with torch.no_grad():
        logits = published(images)
    accuracy = (logits.argmax(1) == labels).double().mean().item()
    # About 94 % of the test set; three standard deviations of 200 images below that.
    assert accuracy > 0.89
    with torch.no_grad():
        folded = FrozenNetwork(published)(images)
    torch.testing.assert_close(folded, logits, atol=1e-3, rtol=1e-3)


def test_its_attacks_succeed_alike_on_the_folded_network(published: Network, real: tuple[Tensor, Tensor]) -> None:
    images, labels = real[0][::5], real[1][::5]
    goal = (labels + 1) % 10

    def success(model: nn.Module) -> Tensor:
        found = pgd(model, images, goal, norm="l2", eps=0.15, step_size=0.05, steps=5, targeted=True)
        with torch.no_grad():
            return published(found).argmax(1) == goal

    plain, fast = success(published), success(FrozenNetwork(published))
    assert 0.1 < plain.double().mean().item() < 0.9
    assert (plain == fast).all()


def test_pgd_agrees_with_apgd(published: Network, real: tuple[Tensor, Tensor]) -> None:
    """A small part of docs/benchmarks/agreement-cpu.md: our PGD beside AutoAttack's APGD-CE, image by image."""
    images, labels = real[0][::25].contiguous(), real[1][::25]
    eps, steps = 0.1, 15
    network = FrozenNetwork(published)
    ours = find_robust(network, images, labels, PGD(kind="pgd", steps=steps, relative_step_sizes=(0.2,)), [eps])[1]
    attack = APGDAttack(published, n_iter=steps, norm="L2", eps=eps, seed=0)
    with torch.no_grad():
        right = published(images).argmax(1) == labels
    found = attack.perturb(images[right], labels[right])
    with torch.no_grad():
        theirs = published(found).argmax(1) == labels[right]
    assert 0 < ours.sum() < len(ours)
    # More than half of these images fall at this radius; two attacks of so few steps may differ on one of eight.
    assert (ours[right] != theirs).sum() <= 1
