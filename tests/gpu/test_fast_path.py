"""`gpu_fast_path` has the bits of the plain way: steps of attacks, trainings, and images from disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from robustfeatures.attacks import invert, pgd
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.engine.batches import Streamed
from robustfeatures.engine.fast_path import set_fast_path
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.settings import Precision
from robustfeatures.models.network import Network
from robustfeatures.pipeline.store.datasets import read_dataset, write_dataset
from robustfeatures.training.adversary import Attacker
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Adversary, Training
from tests.conftest import Digits
from tests.engine.test_frozen_network import lived_in


@pytest.fixture(autouse=True)
def only_on_gpus(device: torch.device) -> Iterator[None]:
    if device.type != "cuda":
        pytest.skip("the fast path is for GPUs alone")
    yield
    set_fast_path(False)


def both_ways(work: Callable[[], list[Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
    """What the plain way makes, and the fast one."""
    set_fast_path(False)
    plain = work()
    set_fast_path(True)
    return plain, work()


def assert_same_bits(work: Callable[[], list[Tensor]]) -> None:
    plain, fast = both_ways(work)
    assert all(torch.equal(one, other) for one, other in zip(plain, fast, strict=True))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("architecture", ["resnet18", "small-cnn", "densenet121"])
@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("targeted", [False, True])
def test_steps_of_an_attack(
    device: torch.device, architecture: str, norm: str, targeted: bool, precision: Precision
) -> None:
    frozen_network = FrozenNetwork(lived_in(architecture, 8, device), precision=precision)
    images, labels = torch.rand(4, 16, 3, 32, 32).to(device), torch.arange(16, device=device) % 7

    attack = partial(pgd, frozen_network, norm=norm, eps=0.3, step_size=0.1, steps=10, targeted=targeted)
    assert_same_bits(lambda: [attack(batch, (labels + number) % 7) for number, batch in enumerate(images)])
    assert len(frozen_network.graphs._graphs) == 1


def test_steps_of_an_inversion(network: Network, digits: Digits) -> None:
    frozen_network = FrozenNetwork(network)

    def work() -> list[Tensor]:
        starts = digits.images[:60].split(20)
        return [invert(frozen_network, start, start.flip(0), step_size=0.1, steps=30) for start in starts]

    assert_same_bits(work)
    assert len(frozen_network.graphs._graphs) == 1


@pytest.mark.slow
def test_steps_of_a_compiled_network(device: torch.device) -> None:
    frozen_network = FrozenNetwork(lived_in("resnet18", 8, device), compile=True)
    images, labels = torch.rand(3, 16, 3, 32, 32).to(device), torch.arange(16, device=device) % 7
    assert_same_bits(
        lambda: [pgd(frozen_network, batch, labels, norm="l2", eps=0.3, step_size=0.1, steps=5) for batch in images]
    )


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_adversarial_training_from_disk(device: torch.device, tmp_path: Path, precision: Precision) -> None:
    """The weights change between attacks, the last batch is small, and threads read meanwhile."""
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 256, (200, 3, 32, 32), dtype=np.uint8), generator.integers(0, 7, 200)
    write_dataset(tmp_path / "data.zarr", {"train": ImageDataset(images, labels, {}, tuple("abcdefg"))})
    adversary = Adversary(norm="l2", eps=0.5, step_size=0.2, steps=5, random_start=True)
    settings = Training(epochs=3, batch_size=32, learning_rate=0.02, weight_decay=5e-4, adversary=adversary)

    def work() -> list[Tensor]:
        network = lived_in("resnet18", 8, device)
        attacker = Attacker(network, adversary, precision)
        streamed = Streamed(read_dataset(tmp_path / "data.zarr", "train", in_memory=False), device)
        train(
            network,
            streamed,
            torch.from_numpy(labels).to(device),
            settings,
            seed=0,
            precision=precision,
            perturbation=attacker,
        )
        return list(network.state_dict().values())

    assert_same_bits(work)
