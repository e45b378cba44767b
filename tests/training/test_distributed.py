"""Trainings in two processes on the processor, with gloo, against the training loop in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch import distributed as dist

from robustfeatures.engine.batches import InMemory
from robustfeatures.errors import UserError
from robustfeatures.models import create
from robustfeatures.pipeline.run import checkpoints
from robustfeatures.pipeline.run.processes import run_together
from robustfeatures.training import distributed, loop
from robustfeatures.training.adversary import Attacker
from robustfeatures.training.loop import HistoryRow
from robustfeatures.training.probes import ProbeSet
from robustfeatures.training.settings import Adversary, Augmentation, Training
from tests.together import forked_together

Train = Callable[..., list[HistoryRow]]

# The last batch of an epoch has five images: three in one share, and two in the other.
IMAGES = 155
TRAINING = Training(epochs=1, batch_size=30, learning_rate=0.02, weight_decay=5e-4)
ADVERSARY = Adversary(norm="l2", eps=0.5, step_size=0.2, steps=3)


class Trained(NamedTuple):
    """Weights and statistics by name; how far the weights moved; the history."""

    state: dict[str, NDArray[np.float64]]
    moved: float
    history: list[HistoryRow]


def draw() -> tuple[Tensor, Tensor]:
    """Images of ten classes, each with a pattern of its own, and their labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 10, (IMAGES,), generator=generator)
    patterns, noise = torch.rand(10, 1, 8, 8, generator=generator), torch.rand(IMAGES, 1, 8, 8, generator=generator)
    return (patterns[labels] + noise) / 2, labels


def small_cnn() -> Any:
    torch.manual_seed(0)
    return create("small-cnn", num_classes=10, image_shape=(1, 8, 8), width=8)


def run(
    train: Train, network: nn.Module, images: Tensor, labels: Tensor, settings: Training, **options: Any
) -> Trained:
    before = {name: tensor.detach().numpy().copy() for name, tensor in network.named_parameters()}
    history = train(network, InMemory(images), labels, settings, seed=0, **options)
    state = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    return Trained(state, apart(before, {name: state[name] for name in before}), history)


def apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The largest difference of two states."""
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


def train_exactly(train: Train) -> Trained:
    """Two pixels of 0 or 1, and one image for each process: no sum has three terms, so its order rounds nothing."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(2, 3, bias=False)).double()
    images, labels = torch.randint(0, 2, (40, 1, 1, 2)).double(), torch.randint(0, 3, (40,))
    settings = Training(epochs=1, batch_size=2, learning_rate=0.5, weight_decay=0.25)
    return run(train, network, images, labels, settings)


def train_in_float64(train: Train, **changes: Any) -> Trained:
    images, labels = draw()
    settings = replace(TRAINING, augmentation=Augmentation(crop_padding=1), **changes)
    return run(train, small_cnn().double(), images.double(), labels, settings)


def train_in_float32(train: Train, *, adversary: Adversary | None = None, **options: Any) -> Trained:
    network, (images, labels) = small_cnn(), draw()
    attacker = Attacker(network, adversary) if adversary else None
    probes = [ProbeSet("some", InMemory(images[:50]), labels[:50], attack=Attacker(network, ADVERSARY))]
    settings = replace(TRAINING, adversary=adversary)
    return run(train, network, images, labels, settings, probes=probes, perturbation=attacker, **options)


CASES: dict[str, Callable[[Train], Trained]] = {
    "exact": train_exactly,
    "float64": train_in_float64,
    "adam": partial(train_in_float64, optimiser="adam", learning_rate=0.002),
    "float32": train_in_float32,
    "adversarial": partial(train_in_float32, adversary=ADVERSARY),
    "random starts": partial(train_in_float32, adversary=replace(ADVERSARY, random_start=True)),
}


@pytest.fixture(scope="module", autouse=True)
def forked() -> Iterator[None]:
    with forked_together("tests.training.test_distributed"):
        yield


def train_all() -> dict[str, Trained]:
    return {name: case(distributed.train) for name, case in CASES.items()}


@pytest.fixture(scope="module")
def together() -> dict[str, Trained]:
    found: dict[str, Trained] = run_together(train_all, (), 2, threads=1, gpus=False)
    return found


@pytest.mark.parametrize(
    ("case", "largest"), [("exact", 0.0), ("float64", 1e-13), ("adam", 1e-11), ("float32", 1e-6), ("adversarial", 1e-5)]
)
def test_the_weights_of_one_process_with_the_same_batches(
    together: dict[str, Trained], case: str, largest: float
) -> None:
    """Their batch norms and the running statistics too; PGD from the image itself attacks each image by itself."""
    alone = CASES[case](loop.train)
    print(f"{case}: {apart(alone.state, together[case].state):.1e} of {alone.moved:.1e}")
    assert alone.moved > 1e-3
    assert apart(alone.state, together[case].state) <= largest


def test_random_starts_differ_between_the_processes(together: dict[str, Trained]) -> None:
    """So the weights are not those of one process, but they are near."""
    alone = CASES["random starts"](loop.train)
    assert 1e-5 < apart(alone.state, together["random starts"].state) < alone.moved / 2


def test_the_history_of_one_process(together: dict[str, Trained]) -> None:
    alone = CASES["float32"](loop.train)
    shared = together["float32"].history
    assert [replace(row, loss=0.0) for row in shared] == [replace(row, loss=0.0) for row in alone.history]
    assert [row.loss for row in shared] == pytest.approx([row.loss for row in alone.history], rel=1e-6)


class StopNowError(Exception):
    """Raised in the middle of a training."""


def train_with_stops(folder: Path) -> tuple[Trained, Trained, int]:
    """A training, and the same one stopped in each of its steps, from checkpoint to checkpoint; how often it was."""
    checkpoints.INTERVAL = 0.0
    seen = 0

    def stop(done: int, total: int) -> None:
        nonlocal seen
        seen += 1
        if seen % 2 == 0:
            raise StopNowError

    adversary = replace(ADVERSARY, random_start=True)
    whole = train_in_float32(distributed.train, adversary=adversary)
    for stops in range(50):
        kept = checkpoints.Checkpoints(folder)
        try:
            resumed = train_in_float32(distributed.train, adversary=adversary, checkpoints=kept, progress=stop)
        except StopNowError:
            continue
        return whole, resumed, stops
    raise AssertionError("the training never ends")


def test_a_training_stopped_at_any_step_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole, resumed, stops = run_together(train_with_stops, (tmp_path,), 3, threads=1, gpus=False)
    assert stops >= 3
    assert apart(whole.state, resumed.state) == 0
    assert whole.history == resumed.history


def train_what_is_refused() -> list[str]:
    refusals = []
    (images, labels), network = draw(), small_cnn()
    for changed, batch_size in ((network, 22), (nn.Sequential(nn.SyncBatchNorm(1), network), 30)):
        with pytest.raises(UserError) as refusal:
            run(distributed.train, changed, images, labels, replace(TRAINING, batch_size=batch_size))
        refusals.append(str(refusal.value))
    return refusals


def test_what_is_refused() -> None:
    few, unknown = run_together(train_what_is_refused, (), 2, threads=1, gpus=False)
    assert few == (
        "training.gpus_per_training: an epoch ends with a batch of 1 images, too few for 2 processes; choose another "
        "training.batch_size"
    )
    assert unknown == (
        "training.gpus_per_training: the network has a SyncBatchNorm, which cannot be synchronised; leave the field out"
    )


def normalise(*, processes: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first gradients of a batch norm of 7 values in three channels, and what it gives afterwards in eval mode."""
    values = torch.randn(7, 3, 5, generator=torch.Generator().manual_seed(0)).double()
    layer = nn.BatchNorm1d(3, momentum=None, affine=False).double()
    rank = dist.get_rank() if processes > 1 else 0
    share = values.tensor_split(processes)[rank].requires_grad_()
    with distributed.synchronised_batch_norms(layer) if processes > 1 else nullcontext():
        (layer(share) * torch.sin(9 * share)).sum().backward()
        output = layer.eval()(values)
    assert type(layer) is nn.BatchNorm1d
    assert share.grad is not None
    return share.grad[:2].numpy(), output.numpy()


def test_batch_norms_against_torch() -> None:
    shared = run_together(partial(normalise, processes=3), (), 3, threads=1, gpus=False)
    for found, expected in zip(shared, normalise(processes=1), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
