"""The attack inside training: random starts, and batches of which a share stays natural."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from robustfeatures.engine.batches import InMemory
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.pipeline.run import checkpoints
from robustfeatures.training.adversary import Attacker
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Adversary
from tests.conftest import QUICK, Digits
from tests.training.test_loop import as_bytes, note_batches

EPS = 0.1
RANDOM = Adversary(norm="linf", eps=EPS, step_size=1e-9, steps=1, random_start=True)


def test_random_starts_fill_the_ball_and_follow_from_the_seed(digits: Digits, network: Network) -> None:
    """The one step is too short to move an image away from its start."""
    images, labels = digits.images[:100], digits.labels[:100]
    attack = Attacker(network, RANDOM, "float32")
    found = attack(images, labels, 1)
    assert torch.equal(found, attack(images, labels, 1))
    assert not torch.equal(found, attack(images, labels, 2))
    change = found - images
    assert change.abs().max() <= EPS + 1e-6
    inside = (images > EPS) & (images < 1 - EPS)
    # Uniform on [-eps, eps]: the mean of n absolute values is eps / 2, with deviation eps / sqrt(12 n).
    count = int(inside.sum())
    assert change[inside].abs().mean().item() == pytest.approx(EPS / 2, abs=5 * EPS / (12 * count) ** 0.5)
    # The values themselves have the mean 0 and the deviation eps / sqrt(3).
    assert change[inside].mean().item() == pytest.approx(0.0, abs=5 * EPS / (3 * count) ** 0.5)
    plain = Attacker(network, replace(RANDOM, random_start=False), "float32")
    assert (plain(images, labels, 1) - images).abs().max() < 1e-6


def fresh(device: torch.device) -> Network:
    torch.manual_seed(0)
    return create("small-cnn", num_classes=10, image_shape=(1, 8, 8)).to(device)


@pytest.mark.parametrize(("natural", "left"), [(0.0, 0), (0.5, 30), (0.58, 35), (0.999, 59)])
def test_a_share_of_each_batch_stays_natural(digits: Digits, natural: float, left: int) -> None:
    """What the network is shown, beside what the attack was given."""
    given: list[tuple[Tensor, Tensor, int]] = []

    def attack(images: Tensor, labels: Tensor, seed: int) -> Tensor:
        given.append((images, labels, seed))
        return 1 - images

    network = fresh(digits.images.device)
    shown = note_batches(network)
    settings = replace(QUICK, epochs=2, batch_size=60, natural=natural)
    train(network, InMemory(digits.images[:120]), digits.labels[:120], settings, seed=0, perturbation=attack)
    assert [len(images) for images, _, _ in given] == [60 - left] * 4
    assert len({seed for _, _, seed in given}) == 4
    known = {as_bytes(image): int(label) for image, label in zip(digits.images, digits.labels, strict=True)}
    for batch, (images, labels, _) in zip(shown, given, strict=True):
        assert torch.equal(batch[left:], 1 - images)
        assert all(as_bytes(image) in known for image in batch[:left])
        assert [known[as_bytes(image)] for image in images] == labels.tolist()


class StopNowError(Exception):
    """Raised in the middle of a training."""


def test_random_starts_do_not_move_when_a_training_goes_on(
    digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", 0.0)
    adversary = Adversary(norm="l2", eps=0.5, step_size=0.2, steps=2, random_start=True)
    settings = replace(QUICK, epochs=2, natural=0.5)

    def run(network: Network, folder: Path | None, progress: Callable[[int, int], None]) -> Network:
        train(
            network,
            InMemory(digits.images[:200]),
            digits.labels[:200],
            settings,
            seed=3,
            perturbation=Attacker(network, adversary, "float32"),
            checkpoints=checkpoints.Checkpoints(folder) if folder else None,
            progress=progress,
        )
        return network

    def interrupt(done: int, total: int) -> None:
        if done > 264:
            raise StopNowError

    device = digits.images.device
    whole = run(fresh(device), None, lambda done, total: None).state_dict()
    with pytest.raises(StopNowError):
        run(fresh(device), tmp_path, interrupt)
    resumed = run(fresh(device), tmp_path, lambda done, total: None).state_dict()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
