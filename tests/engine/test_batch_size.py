"""Batches by the memory of the network; when that of the device does not suffice, smaller ones give the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustfeatures.attacks.evaluating.evaluation import EvaluatedSplit, evaluate_block
from robustfeatures.attacks.evaluating.settings import PGD, Attack, AutoAttack, CarliniWagner, Evaluation, Noise
from robustfeatures.derived import inversion, targeted_attack
from robustfeatures.derived.generation import generate_images
from robustfeatures.derived.settings import Inversion, TargetedAttack
from robustfeatures.engine.batch_size import BatchSize, fit_batch_size, measure_kept_bytes
from robustfeatures.engine.batches import InMemory, choose_batch_size
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.training.accuracy import predict
from tests.conftest import Digits
from tests.measurements.conftest import split_of

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
FLOAT = 4


class Small(FrozenNetwork):
    """A network on a device whose memory holds at most `most` images, as torch reports it."""

    most = 20

    def representation(self, images: Tensor) -> Tensor:
        if len(images) > self.most:
            raise torch.OutOfMemoryError(f"{len(images)} images")
        return super().representation(images)


def test_what_a_convolution_and_a_relu_keep() -> None:
    """Without the weights: the input of the convolution, and the output of the ReLU."""
    network = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.AvgPool2d(8), nn.Flatten(), nn.Linear(5, 2))
    # Pooling keeps its own input, which is the output of the ReLU.
    assert measure_kept_bytes(network.eval(), (3, 8, 8)) == FLOAT * (3 + 5) * 64
    assert measure_kept_bytes(network.double(), (3, 8, 8)) == 2 * FLOAT * (3 + 5) * 64
    assert all(weight.requires_grad for weight in network.parameters())


@pytest.mark.parametrize(
    ("name", "side", "images"), [("resnet50", 32, 256), ("resnet18", 32, 1024), ("mnist-cnn", 28, 1024)]
)
def test_batches_on_a_gpu_follow_from_the_network(name: str, side: int, images: int) -> None:
    """They keep less than 3 GiB. By the images alone, 1024 of the first would take 12 GB."""
    shape = (1 if side == 28 else 3, side, side)
    network = FrozenNetwork(create(name, num_classes=10, image_shape=shape).eval())
    assert fit_batch_size(network, CUDA, shape).images == images
    assert fit_batch_size(network, CPU, shape).images == choose_batch_size(CPU, shape)


@pytest.mark.slow
def test_large_images_go_in_large_batches() -> None:
    network = FrozenNetwork(create("resnet50-imagenet", num_classes=9, image_shape=(3, 224, 224)).eval())
    assert fit_batch_size(network, CUDA, (3, 224, 224)).images == 64


def test_half_precision_takes_twice_the_images() -> None:
    network = create("resnet18", num_classes=10, image_shape=(3, 16, 16), width=8).eval()
    full, half = (
        measure_kept_bytes(FrozenNetwork(network, precision=precision), (3, 16, 16))
        for precision in ("float32", "bfloat16")
    )
    assert half == pytest.approx(full / 2, rel=0.05)


def test_a_batch_is_halved_until_it_fits(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[int] = []

    def compute(images: int) -> int:
        asked.append(images)
        if images > 100:
            raise torch.OutOfMemoryError
        return images

    size = BatchSize(512)
    assert (size.fit(compute), size.fit(compute)) == (64, 64)
    assert asked == [512, 256, 128, 64, 64]
    assert size.planned == 512
    assert caplog.messages[0] == "the device has too little memory for 512 images at once; now 256"


def test_one_image_that_does_not_fit_is_an_error() -> None:
    def compute(images: int) -> None:
        raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError):
        BatchSize(4).fit(compute)


@pytest.mark.parametrize(
    "attack",
    [
        PGD(kind="pgd", steps=10, relative_step_sizes=(0.2,), random_starts=1),
        CarliniWagner(kind="cw-l2", searches=2, steps=10, learning_rate=0.03, initial_constant=1.0),
        Noise(kind="noise", draws=10),
        AutoAttack(kind="autoattack", parts=("apgd-ce",)),
        pytest.param(AutoAttack(kind="autoattack", parts=("apgd-t",)), marks=pytest.mark.slow),
        pytest.param(AutoAttack(kind="autoattack", parts=("fab-t",)), marks=pytest.mark.slow),
        AutoAttack(kind="autoattack", parts=("square",), queries=50),
    ],
    ids=lambda attack: attack.name,
)
def test_an_evaluation_is_the_same_with_little_memory(network: Network, digits: Digits, attack: Attack) -> None:
    """Every image has the same outcome, also against the attacks that draw at random."""
    parameters = Evaluation(split="test", norm="l2", attacks=(attack,), eps=(0.0, 0.25))
    rows = torch.arange(1300, 1340)

    def evaluate(network: nn.Module) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        # As of a network of four classes, the fewest that APGD-T takes: it and FAB-T aim at each of the others in turn.
        split = EvaluatedSplit(network, InMemory(digits.images), digits.labels, 4)
        robust = evaluate_block(split, rows, parameters).robust
        assert split.batch_size.images == (16 if isinstance(network, Small) else 512)
        return robust

    expected = evaluate(FrozenNetwork(network))
    assert 0 < expected[0, 0, 1].mean() < 1
    np.testing.assert_array_equal(evaluate(Small(network)), expected)


@pytest.mark.parametrize(
    ("derive", "method"),
    [
        (inversion.derive, Inversion(kind="inversion", start="images", step_size=0.1, steps=20)),
        (
            targeted_attack.derive,
            TargetedAttack(kind="targeted-attack", target="random", norm="l2", eps=0.5, step_size=0.1, steps=20),
        ),
    ],
    ids=["inversion", "targeted-attack"],
)
def test_a_derived_set_is_the_same_with_little_memory(
    network: Network, digits: Digits, derive: Callable[..., object], method: object
) -> None:
    original = split_of(digits, slice(1000, 1070))
    rows = np.arange(70)
    found = []
    for each in (FrozenNetwork(network), Small(network)):
        derivation = derive(each, original, method, seed=0, device=CPU)
        size, done = BatchSize(64), list[int]()
        found.append(generate_images(derivation, rows, original.image_shape, size, done.append))  # type: ignore[arg-type]
        assert size.images == (16 if isinstance(each, Small) else 64)
        assert done[-1] == 70 * 20
    # Rounding alone: steps are 0.1 long, pixels lie in 0 to 1.
    assert np.abs(found[0] - found[1]).max() < 1e-4


def test_predictions_are_the_same_with_little_memory(network: Network, digits: Digits) -> None:
    images = InMemory(digits.images[:100])
    assert torch.equal(predict(Small(network), images), predict(FrozenNetwork(network), images))
