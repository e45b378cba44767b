"""The training loop against torch's own pieces, and what resumption must not change."""

from __future__ import annotations

import copy
import math
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn
from torch.nn import functional

from robustfeatures.attacks import pgd
from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.settings import Precision
from robustfeatures.errors import UserError
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.pipeline.run import checkpoints
from robustfeatures.training.accuracy import accuracy
from robustfeatures.training.adversary import Attacker
from robustfeatures.training.loop import HistoryRow, train
from robustfeatures.training.probes import ProbeSet
from robustfeatures.training.schedules import constant, one_cycle, step_drops
from robustfeatures.training.settings import Adversary, Augmentation, Training
from tests.conftest import QUICK, Digits


def fresh(digits: Digits, seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return create("small-cnn", num_classes=10, image_shape=(1, 8, 8)).to(digits.images.device)


def equal(one: Network, other: Network) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def note_batches(network: nn.Module) -> list[torch.Tensor]:
    """The batches that the network is given from now on."""
    shown: list[torch.Tensor] = []
    network.register_forward_pre_hook(lambda module, arguments: shown.append(arguments[0].detach().clone()))
    return shown


def as_bytes(image: torch.Tensor) -> bytes:
    return image.cpu().contiguous().numpy().tobytes()


@pytest.mark.parametrize(
    ("schedule", "steps", "expected"),
    [
        (constant(0.1), (0, 50, 99), (0.1, 0.1, 0.1)),
        (step_drops(1.0, [10, 20]), (0, 9, 10, 19, 20, 30), (1, 1, 0.1, 0.1, 0.01, 0.01)),
        (one_cycle(1.0, 100), (0, 11, 24, 25, 50, 75, 99), (0.04, 0.48, 1.0, 1.0, 2 / 3, 1 / 3, 1 / 75)),
    ],
)
def test_schedules(schedule: Callable[[int], float], steps: tuple[int, ...], expected: tuple[float, ...]) -> None:
    assert [schedule(step) for step in steps] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("schedule", "milestones", "rates"),
    [
        ("step", (1,), [0.1] * 3 + [0.01] * 6),
        # Up over the first quarter of the nine steps, then down.
        ("one-cycle", (), [0.1 * min((step + 1) / 2.25, (9 - step) / 6.75, 1.0) for step in range(9)]),
    ],
)
def test_a_training_is_torchs(
    digits: Digits, schedule: Literal["step", "one-cycle"], milestones: tuple[int, ...], rates: list[float]
) -> None:
    """The batches that the network is shown, given to torch's own optimiser at the rates of the schedule."""
    images, labels = digits.images[:50].double(), digits.labels[:50]
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).double().to(images.device)
    other = copy.deepcopy(network)
    shown = note_batches(network)
    settings = Training(
        epochs=3,
        batch_size=20,
        learning_rate=0.1,
        momentum=0.9,
        weight_decay=0.05,
        schedule=schedule,
        milestones=milestones,
    )
    train(network, InMemory(images), labels, settings, seed=0)
    place = {as_bytes(image): row for row, image in enumerate(images)}
    batches = [[place[as_bytes(image)] for image in batch] for batch in shown]
    epochs = [[row for batch in batches[first : first + 3] for row in batch] for first in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in [*epochs, range(50)]}) == 4
    optimiser = torch.optim.SGD(other.parameters(), lr=1.0, momentum=0.9, weight_decay=0.05)
    for rows, rate in zip(batches, rates, strict=True):
        optimiser.param_groups[0]["lr"] = rate
        optimiser.zero_grad()
        functional.cross_entropy(other(images[rows]), labels[rows]).backward()
        optimiser.step()
    torch.testing.assert_close(network.state_dict(), other.state_dict())


def test_a_network_is_shown_augmented_images(digits: Digits) -> None:
    images, labels = digits.images[:50], digits.labels[:50]
    network = fresh(digits)
    shown = note_batches(network)
    settings = replace(QUICK, epochs=1, augmentation=Augmentation(flip=True))
    train(network, InMemory(images), labels, settings, seed=0)
    seen = [as_bytes(image) for image in torch.cat(shown)]
    plain, mirrored = ({as_bytes(image) for image in each} for each in (images, images.flip(3)))
    assert set(seen) <= plain | mirrored
    # Half of 50 on average; fewer than 8 or more than 42 have a chance below one in a million.
    assert 8 <= sum(image in mirrored for image in seen) <= 42


def test_adversarial_training_raises_robust_accuracy(digits: Digits) -> None:
    settings = replace(QUICK, epochs=8)
    adversary = Adversary(norm="l2", eps=0.75, step_size=0.15, steps=7)
    standard, robust = fresh(digits), fresh(digits)
    images, labels = InMemory(digits.images[:1000]), digits.labels[:1000]
    train(standard, images, labels, settings, seed=0)
    train(robust, images, labels, settings, seed=0, perturbation=Attacker(robust, adversary, "float32"))
    test_images, test_labels = digits.images[1000:], digits.labels[1000:]

    def robust_accuracy(network: Network) -> float:
        adversarial = pgd(network, test_images, test_labels, norm="l2", eps=0.5, step_size=0.05, steps=40)
        return accuracy(network, InMemory(adversarial), test_labels)

    assert accuracy(standard, InMemory(test_images), test_labels) > 0.85
    assert accuracy(robust, InMemory(test_images), test_labels) > 0.85
    assert robust_accuracy(robust) > robust_accuracy(standard) + 0.3


def test_no_gradient_takes_memory_between_two_steps(digits: Digits) -> None:
    network, left = fresh(digits), []

    def attack(images: torch.Tensor, labels: torch.Tensor, seed: int) -> torch.Tensor:
        left.append([name for name, parameter in network.named_parameters() if parameter.grad is not None])
        return images

    settings = replace(QUICK, epochs=1)
    train(network, InMemory(digits.images[:200]), digits.labels[:200], settings, seed=0, perturbation=attack)
    assert left == [[]] * 4


class StopNowError(Exception):
    """Raised in the middle of a training."""


def test_a_network_with_dropout_goes_on_bit_for_bit(
    digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", 0.0)
    layers = (nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10))
    first = nn.Sequential(*layers).to(digits.images.device)

    def run(network: nn.Module, folder: Path | None, stop: float) -> nn.Module:
        def progress(done: int, total: int) -> None:
            if done > stop:
                raise StopNowError

        saved = checkpoints.Checkpoints(folder) if folder else None
        images, labels = InMemory(digits.images[:300]), digits.labels[:300]
        train(network, images, labels, QUICK, seed=3, checkpoints=saved, progress=progress)
        return network

    whole = run(copy.deepcopy(first), None, math.inf)
    with pytest.raises(StopNowError):
        run(copy.deepcopy(first), tmp_path, 364)
    # The draws before must not matter.
    torch.rand(7)
    resumed = run(copy.deepcopy(first), tmp_path, math.inf)
    for expected, value in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(value, expected)


AUGMENTATION = Augmentation(crop_padding=1, flip=True, smallest_crop=0.5, rotation=2.0, colour_jitter=0.1)


@pytest.mark.parametrize(
    ("augmentation", "optimiser", "momentum"),
    [(None, "sgd", 0.9), (None, "sgd", 0.0), (AUGMENTATION, "sgd", 0.9), (None, "adam", 0.9)],
)
def test_a_training_stopped_at_any_step_goes_on_bit_for_bit(
    digits: Digits,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    augmentation: Augmentation | None,
    optimiser: Literal["sgd", "adam"],
    momentum: float,
) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", 0.0)
    settings = replace(
        QUICK, epochs=4, schedule="one-cycle", augmentation=augmentation, optimiser=optimiser, momentum=momentum
    )
    labels = digits.labels[:300]
    probes = [ProbeSet("held out", InMemory(digits.images[300:500]), digits.labels[300:500])]

    def run(network: Network, folder: Path | None, progress: Callable[[int, int], None]) -> list[HistoryRow]:
        return train(
            network,
            InMemory(digits.images[:300]),
            labels,
            settings,
            seed=3,
            probes=probes,
            checkpoints=checkpoints.Checkpoints(folder) if folder else None,
            progress=progress,
        )

    whole = fresh(digits)
    seen: list[int] = []
    history = run(whole, None, lambda done, total: seen.append(done))
    assert len(history) == 4
    assert seen == [epoch * 300 + done for epoch in range(4) for done in (64, 128, 192, 256, 300)]
    # In the middle of an epoch, at its end, and at its beginning.
    for stop in (128, 300, 364, 1192):
        folder = tmp_path / str(stop)
        folder.mkdir()

        def interrupt(done: int, total: int, stop: int = stop) -> None:
            assert total == 1200
            if done > stop:
                raise StopNowError

        with pytest.raises(StopNowError):
            run(fresh(digits), folder, interrupt)
        # Another initialisation, so that only the checkpoint can bring the weights back.
        resumed, after = fresh(digits, seed=99), []
        again = run(resumed, folder, lambda done, total, after=after: after.append(done))  # type: ignore[misc]
        assert after == [done for done in seen if done > stop]
        assert equal(resumed, whole)
        assert again == history


@pytest.mark.parametrize(
    ("architecture", "width"), [("resnet18", 4), ("resnet18", 16), ("small-cnn", 4), ("mnist-cnn", 4)]
)
@pytest.mark.parametrize("shape", [(3, 16, 16), (3, 8, 8), (1, 8, 8)])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_layout_changes_nothing(
    device: torch.device, architecture: str, width: int, shape: tuple[int, int, int], precision: Precision
) -> None:
    """One step equals torch's own on plain tensors, in channels-last and where oneDNN cannot use it."""
    torch.manual_seed(0)
    network = create(architecture, num_classes=3, image_shape=shape, width=width).to(device)
    reference, before = copy.deepcopy(network), copy.deepcopy(network)
    images, labels = torch.rand(32, *shape).to(device), torch.arange(32, device=device) % 3
    settings = Training(epochs=1, batch_size=32, learning_rate=0.1, schedule="constant", momentum=0.0)
    train(network, InMemory(images), labels, settings, seed=0, precision=precision)
    reference.train()
    torch.nn.functional.cross_entropy(reference(images), labels).backward()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter -= 0.1 * parameter.grad
    pairs = [
        (moved - old, expected - old)
        for moved, expected, old in zip(network.parameters(), reference.parameters(), before.parameters(), strict=True)
    ]
    ours, theirs = (torch.cat([change[side].detach().flatten() for change in pairs]) for side in (0, 1))
    alike = torch.nn.functional.cosine_similarity(ours, theirs, dim=0)
    assert alike > (0.9999 if precision == "float32" else 0.9)


def test_the_loss_of_an_epoch_is_the_mean_over_its_images() -> None:
    """The network hardly moves, and the last batch is small: its images count no more than others."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
    images, labels = torch.rand(70, 1, 4, 4), torch.arange(70) % 3
    expected = torch.nn.functional.cross_entropy(network(images), labels).item()
    settings = Training(epochs=2, batch_size=64, learning_rate=1e-12, schedule="constant")
    probes = [ProbeSet("all", InMemory(images), labels)]
    history = train(network, InMemory(images), labels, settings, seed=0, probes=probes)
    assert [row.loss for row in history] == pytest.approx([expected] * 2, rel=1e-5)


def test_a_damaged_checkpoint_is_a_fresh_start(digits: Digits, tmp_path: Path) -> None:
    settings = replace(QUICK, epochs=1)
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with_damage, without = fresh(digits), fresh(digits)
    train(
        with_damage,
        InMemory(digits.images[:100]),
        digits.labels[:100],
        settings,
        seed=0,
        checkpoints=checkpoints.Checkpoints(tmp_path),
    )
    train(without, InMemory(digits.images[:100]), digits.labels[:100], settings, seed=0)
    assert equal(with_damage, without)


@pytest.mark.parametrize("request_to_end", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_end_is_heard_when_the_checkpoint_is_saved(
    digits: Digits, tmp_path: Path, request_to_end: signal.Signals
) -> None:
    settings = replace(QUICK, epochs=2)
    images, labels = InMemory(digits.images[:300]), digits.labels[:300]

    def ask(done: int, total: int) -> None:
        if done == 128:
            signal.raise_signal(request_to_end)

    def run(network: Network, progress: Callable[[int, int], None]) -> None:
        with checkpoints.Checkpoints(tmp_path) as kept:
            train(network, images, labels, settings, seed=0, checkpoints=kept, progress=progress)

    whole, resumed = fresh(digits), fresh(digits)
    train(whole, images, labels, settings, seed=0)
    before = signal.getsignal(request_to_end)
    with pytest.raises(UserError, match=f"stopped by {request_to_end.name} with a checkpoint saved"):
        run(fresh(digits), ask)
    assert signal.getsignal(request_to_end) == before
    seen: list[int] = []
    run(resumed, lambda done, total: seen.append(done))
    assert seen[0] == 192
    assert equal(resumed, whole)


def test_ctrl_c_twice_ends_at_once(tmp_path: Path) -> None:
    with checkpoints.Checkpoints(tmp_path):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_diverging_training_stops(digits: Digits) -> None:
    settings = Training(epochs=3, batch_size=64, learning_rate=1e30, schedule="constant")
    with pytest.raises(UserError, match=r"loss is (nan|inf) in epoch 1, step 5; lower training.learning_rate"):
        train(fresh(digits), InMemory(digits.images[:300]), digits.labels[:300], settings, seed=0)


class Masked(nn.Module):
    """A network with a constant that is infinite, as attention masks are."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.register_buffer("mask", torch.tensor([0.0, -math.inf]))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.linear(images.flatten(1))
        return logits


def test_a_buffer_that_was_infinite_from_the_start_is_no_divergence() -> None:
    settings = Training(epochs=1, batch_size=16, learning_rate=0.01, schedule="constant")
    history = train(Masked(), InMemory(torch.rand(32, 1, 8, 8)), torch.arange(32) % 10, settings, seed=0)
    assert history == []


def test_a_last_batch_without_statistics_is_one_clear_line() -> None:
    network = create("resnet18", num_classes=2, image_shape=(1, 8, 8), width=4)
    settings = Training(epochs=1, batch_size=16, learning_rate=0.01, schedule="constant")
    images, labels, steps = InMemory(torch.rand(33, 1, 8, 8)), torch.arange(33) % 2, []
    before = {name: values.clone() for name, values in network.state_dict().items()}
    with pytest.raises(UserError, match=r"^training\.batch_size: an epoch ends with a batch of one image; choose ano"):
        train(network, images, labels, settings, seed=0, progress=lambda done, total: steps.append(done))
    assert steps == []
    assert all(torch.equal(values, before[name]) for name, values in network.state_dict().items())


def test_batch_norm_counts_the_steps_alone_where_it_can_train_on_one_image() -> None:
    """Each image has 36 pixels after the convolution, so that one image has a variance."""
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, 2))
    settings = Training(epochs=1, batch_size=16, learning_rate=0.01, schedule="constant")
    train(network, InMemory(torch.rand(33, 1, 8, 8)), torch.arange(33) % 2, settings, seed=0)
    assert network.state_dict()["1.num_batches_tracked"] == 3
