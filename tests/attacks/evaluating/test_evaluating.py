"""The attacks of an evaluation: their outcomes, their batches, and how little work they do."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from robustfeatures.attacks import l2
from robustfeatures.attacks.evaluating.evaluation import BlockOutcome, EvaluatedSplit, count_correct, evaluate_block
from robustfeatures.attacks.evaluating.settings import PGD, Attack, AutoAttack, CarliniWagner, Evaluation, Noise
from robustfeatures.engine import batch_size
from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.errors import UserError
from robustfeatures.models import create
from robustfeatures.models.network import Network
from tests.benchmarks.evaluation import Counting, attack_everything
from tests.conftest import Digits

RADII = (0.2, 0.4, 0.6, 0.8)
QUICK = PGD(kind="pgd", steps=10, relative_step_sizes=(0.2,))


class Sizes(nn.Module):
    """A network that notes how many images it is given with gradients, and without."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.graded: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            self.graded.append(len(images))
        logits: Tensor = self.network(images)
        return logits


class HostReads(TorchDispatchMode):
    """Counts operations for which the host waits: reading a number, and indexing with a condition."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        chosen = args[1] if name in ("index", "index_put", "index_put_", "_index_put_impl_") else ()
        conditions = [index for index in chosen if index is not None and index.dtype == torch.bool]
        self.count += name in ("_local_scalar_dense", "nonzero") or bool(conditions)
        return function(*args, **(kwargs or {}))


def evaluate(network: nn.Module, digits: Digits, *attacks: Attack, radii: tuple[float, ...] = RADII) -> BlockOutcome:
    """The outcome on 200 test images."""
    rows = torch.arange(1300, 1500)
    parameters = Evaluation(split="test", norm="l2", attacks=attacks, eps=radii)
    return evaluate_block(EvaluatedSplit(network, InMemory(digits.images), digits.labels, 10), rows, parameters)


@pytest.mark.parametrize("sizes", [(0.2,), (0.1, 0.5)])
def test_agrees_with_attacking_every_image_at_every_radius(
    network: Network, digits: Digits, sizes: tuple[float, ...]
) -> None:
    attack = PGD(kind="pgd", steps=10, relative_step_sizes=sizes)
    frozen_network = Counting(FrozenNetwork(network))
    robust = torch.from_numpy(evaluate(frozen_network, digits, attack).robust[0, 0])
    ours = frozen_network.both_ways
    images, labels = digits.images[1300:1500], digits.labels[1300:1500]
    expected = attack_everything(frozen_network, images, labels, attack, RADII)
    assert torch.equal(robust, expected.cpu())
    assert 0.05 < expected[1].double().mean() < 0.95
    # Robust images need all steps at their radii; only the other work can be saved.
    least = int(robust.sum()) * (attack.steps + 1) * len(sizes)
    assert least <= ours < 0.7 * (frozen_network.both_ways - ours)


def test_batches_are_refilled_as_images_leave(
    network: Network, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluate(FrozenNetwork(network), digits, QUICK)
    # The first is for a processor, the second for a GPU.
    monkeypatch.setattr(batch_size, "choose_batch_size", lambda device, shape: 16)
    monkeypatch.setattr(batch_size, "LARGEST_BATCH", 16)
    counting = Sizes(FrozenNetwork(network))
    small = evaluate(counting, digits, QUICK)
    assert (small.robust == whole.robust).all()
    assert max(counting.graded) == 16
    # On a GPU the memory of two images is measured first.
    graded = counting.graded[counting.graded.index(16) :]
    drained = next(number for number, size in enumerate(graded) if size < 16)
    # The last images end within the steps of all radii; before that every batch is full.
    assert len(graded) - drained <= (QUICK.steps + 1) * len(RADII)
    assert sum(graded[:drained]) > 0.8 * sum(graded)


@pytest.mark.parametrize(
    ("attack", "questions"),
    [
        (PGD(kind="pgd", steps=5, relative_step_sizes=(0.1, 0.3)), 1),
        (PGD(kind="pgd", steps=5, relative_step_sizes=(0.1, 0.3), random_starts=2), 2),
        (Noise(kind="noise", draws=10), 1),
        (CarliniWagner(kind="cw-l2", searches=2, steps=10, learning_rate=0.03, initial_constant=1.0), 2),
    ],
    ids=["pgd", "pgd with random starts", "noise", "cw-l2"],
)
def test_a_step_asks_the_device_no_more_than_it_must(
    network: Network, digits: Digits, attack: Attack, questions: int
) -> None:
    """The host waits for the device only to learn which images are done, to start at random, and to end a search."""
    frozen_network = FrozenNetwork(network)
    steps: list[int] = []
    frozen_network.register_forward_hook(lambda module, images, logits: steps.append(len(logits)))
    with HostReads() as mode:
        evaluate(frozen_network, digits, attack)
    # A few before the first step.
    assert len(steps) > 10
    assert mode.count <= questions * len(steps) + 5


def test_an_attack_sees_only_what_is_left(network: Network, digits: Digits) -> None:
    frozen_network = Sizes(FrozenNetwork(network))
    longer = PGD(kind="pgd", steps=20, relative_step_sizes=(0.1,))
    alone = evaluate(frozen_network, digits, QUICK)
    before = sum(frozen_network.graded)
    both = evaluate(frozen_network, digits, QUICK, longer)
    # The rows of the first attack are those it has alone; the second can only take from them.
    assert (both.robust[0, 0] == alone.robust[0, 0]).all()
    assert (both.robust[0, 1] <= both.robust[0, 0]).all()
    pairs = int(both.robust[0, 0].sum())
    assert sum(frozen_network.graded) - 2 * before <= pairs * (longer.steps + 1)
    # An image broken at one radius is broken at all larger radii.
    assert (both.robust[:, :, 1:] <= both.robust[:, :, :-1]).all()


def test_random_starts_are_drawn_again_the_same(network: Network, digits: Digits) -> None:
    starts = PGD(kind="pgd", steps=5, relative_step_sizes=(0.3,), random_starts=2)
    first, second = (evaluate(FrozenNetwork(network), digits, starts) for _ in range(2))
    assert (first.robust == second.robust).all()
    (plain,) = (evaluate(FrozenNetwork(network), digits, PGD(kind="pgd", steps=5, relative_step_sizes=(0.3,))),)
    assert (first.robust <= plain.robust).all()
    assert first.robust.sum() < plain.robust.sum()
    counts = first.diagnostics[0, 0, "broken from a random start alone"]
    assert counts[:, 0].sum() >= plain.robust.sum(axis=3)[0, 0].astype(int)[0] - first.robust.sum(axis=3)[0, 0][0]


def test_every_random_start_is_a_point_of_its_own_whatever_the_block(
    network: Network, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, drawn = l2.random_start, set[bytes]()

    def note(images: Tensor, eps: float, generator: torch.Generator | None) -> Tensor:
        start = real(images, eps, generator)
        # A point drawn twice would have the same direction, whatever the radius.
        direction = (start / start.norm() * 1000).round().numpy().tobytes()
        assert direction not in drawn
        drawn.add(direction)
        return start

    monkeypatch.setattr(l2, "random_start", note)
    attack = PGD(kind="pgd", steps=3, relative_step_sizes=(0.3,), random_starts=2)
    parameters = Evaluation(split="test", norm="l2", attacks=(attack,), eps=(0.1, 0.2))
    split = EvaluatedSplit(FrozenNetwork(network), InMemory(digits.images), digits.labels, 10)
    evaluate_block(split, torch.arange(1300, 1340), parameters)
    whole = set(drawn)
    # Two starts, at both radii, for each image that nothing broke.
    assert len(whole) > 100
    drawn.clear()
    for rows in torch.arange(1300, 1340).split(20):
        evaluate_block(split, rows, parameters)
    assert drawn == whole


@pytest.mark.parametrize(
    "attack",
    [PGD(kind="pgd", steps=5, relative_step_sizes=(0.1, 0.3), random_starts=1), Noise(kind="noise", draws=10)],
    ids=["pgd", "noise"],
)
def test_diagnostics_look_once_at_each_image_at_each_radius(network: Network, digits: Digits, attack: Attack) -> None:
    """The smallest radius takes the images that are right, every other one those that withstood the radius before."""
    found = evaluate(FrozenNetwork(network), digits, attack, radii=(0.0, *RADII))
    attacked = found.robust[0, 0, :-1].sum(axis=1)
    assert len(set(attacked)) > 2
    for counts in found.diagnostics.values():
        assert (counts[:, 1] == attacked).all()


def test_radius_0_is_clean_and_labels_are_shifted(network: Network, digits: Digits) -> None:
    rows = torch.arange(1300, 1500)
    parameters = Evaluation(split="test", norm="l2", attacks=(QUICK,), eps=(0.3, 0.0), label_shifts=(0, 1))
    found = evaluate_block(
        EvaluatedSplit(FrozenNetwork(network), InMemory(digits.images), digits.labels, 10), rows, parameters
    )
    with torch.no_grad():
        predicted = network(digits.images[rows]).argmax(1)
    for shift in (0, 1):
        assert (found.robust[shift, 0, 0] == (predicted == (digits.labels[rows] + shift) % 10).cpu().numpy()).all()


def test_cw_compares_distances(network: Network, digits: Digits) -> None:
    """One run serves all radii. An image whose nearest example lies within the smallest radius leaves at once."""
    attack = CarliniWagner(kind="cw-l2", searches=2, steps=25, learning_rate=0.03, initial_constant=1.0)
    after_pgd = evaluate(FrozenNetwork(network), digits, QUICK, attack).robust[0]
    alone = evaluate(FrozenNetwork(network), digits, attack).robust[0, 0]
    assert (after_pgd[1] == (after_pgd[0] & alone)).all()
    longer = CarliniWagner(kind="cw-l2", searches=9, steps=25, learning_rate=0.03, initial_constant=1.0)
    counting = Sizes(FrozenNetwork(network))
    evaluate(counting, digits, longer, radii=(10.0,))
    # Any adversarial example lies within a radius that holds all images.
    assert sum(counting.graded) < 200 * 25 * 2


def test_autoattack_takes_more_than_pgd(network: Network, digits: Digits) -> None:
    """The attacks of the package draw from torch's generator and need contiguous gradients."""
    attack = AutoAttack(kind="autoattack", parts=("apgd-ce", "square"), queries=20)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first, second = (evaluate(FrozenNetwork(network), digits, QUICK, attack, radii=(0.5,)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert (first.robust == second.robust).all()
    assert first.robust[0, 1].sum() < first.robust[0, 0].sum()
    (counts,) = (value for (_, _, name), value in first.diagnostics.items() if name == "broken without gradients")
    assert (counts[:, 1] >= first.robust[0, 1].sum(axis=1)).all()


@pytest.mark.parametrize(("classes", "part"), [(5, "apgd-t"), (2, "fab-t")])
def test_autoattack_on_networks_in_the_channels_last_layout(classes: int, part: Literal["apgd-t", "fab-t"]) -> None:
    """The package cannot use gradients in this layout. It tries as many targets as there are other classes."""
    torch.manual_seed(0)
    network = create("small-cnn", num_classes=classes, image_shape=(3, 16, 16), width=4).eval()
    images = torch.rand(6, 3, 16, 16)
    with torch.no_grad():
        # An untrained network, set so that it separates these images, and with hardly a margin.
        network.head.bias -= network(images).mean(0)
        labels = network(images).argmax(1)
    parameters = Evaluation(
        split="test", norm="linf", attacks=(AutoAttack(kind="autoattack", parts=(part,)),), eps=(0.0, 0.1)
    )
    found = evaluate_block(
        EvaluatedSplit(FrozenNetwork(network), InMemory(images), labels, classes), torch.arange(6), parameters
    )
    assert found.robust[0, 0, 0].all()
    assert not found.robust[0, 0, 1].any()


def test_targeted_apgd_is_left_out_with_fewer_than_four_classes() -> None:
    """If nothing else is left, no image was attacked, and the accuracy would look robust."""
    torch.manual_seed(0)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    images = torch.rand(4, 1, 8, 8)
    labels = linear(images).argmax(1)

    def evaluated(*parts: str) -> np.ndarray:
        autoattack = AutoAttack(kind="autoattack", parts=parts, queries=200)  # type: ignore[arg-type]
        parameters = Evaluation(split="test", norm="l2", attacks=(autoattack,), eps=(0.05, 5.0))
        split = EvaluatedSplit(linear, InMemory(images), labels, 3)
        return evaluate_block(split, torch.arange(4), parameters).robust

    alone = evaluated("square")
    assert 0 < alone.mean() < 1
    assert np.array_equal(evaluated("apgd-t", "square"), alone)
    with pytest.raises(UserError, match="attacks: autoattack: apgd-t needs 4 classes, and there are 3; name another"):
        evaluated("apgd-t")


def test_torchs_settings_are_left_as_they_were() -> None:
    linear = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    images = torch.rand(4, 1, 8, 8)
    autoattack = AutoAttack(kind="autoattack", parts=("square",), queries=10)
    parameters = Evaluation(split="test", norm="l2", attacks=(autoattack,), eps=(0.1,))
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        split = EvaluatedSplit(linear, InMemory(images), linear(images).argmax(1), 3)
        evaluate_block(split, torch.arange(4), parameters)
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_nothing_is_left_to_attack(digits: Digits, network: Network) -> None:
    attacks = (QUICK, CarliniWagner(kind="cw-l2"), AutoAttack(kind="autoattack"), Noise(kind="noise", draws=3))
    wrong = digits.labels + 1
    parameters = Evaluation(split="test", norm="l2", attacks=attacks, eps=(5.0,))
    rows = torch.arange(1300, 1304)
    found = evaluate_block(
        EvaluatedSplit(FrozenNetwork(network), InMemory(digits.images), wrong % 10, 10), rows, parameters
    )
    assert not found.robust.any()


class ViewedByLength(nn.Module):
    """A network that accepts no batch without images, as many do not: the other dimension cannot be inferred."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.linear(images.view(len(images), -1))
        return logits


def test_nothing_is_left_for_a_network_that_needs_images(digits: Digits) -> None:
    attacks = (QUICK, CarliniWagner(kind="cw-l2"), AutoAttack(kind="autoattack"))
    parameters = Evaluation(split="test", norm="l2", attacks=attacks, eps=(5.0,))
    network = ViewedByLength()
    with torch.no_grad():
        wrong = (network(digits.images).argmax(1) + 1) % 10
    found = evaluate_block(EvaluatedSplit(network, InMemory(digits.images), wrong, 10), torch.arange(4), parameters)
    assert not found.robust.any()


def test_rows_count_what_the_first_attacks_leave() -> None:
    """Two blocks, two shifts, two attacks, radii 0 and 0.5 given out of order: each count by hand."""
    attacks = (PGD(kind="pgd", steps=1, relative_step_sizes=(1.0,)), Noise(kind="noise", draws=1))
    parameters = Evaluation(split="test", norm="l2", attacks=attacks, eps=(0.5, 0.0), label_shifts=(0, 3))
    robust = np.zeros((2, 2, 2, 5), np.bool_)
    robust[0, :, 0, :4] = True
    robust[0, 0, 1, :3] = True
    robust[0, 1, 1, :1] = True
    robust[1, :, 0, 4:] = True
    blocks = [BlockOutcome(robust[..., :2], {}), BlockOutcome(robust[..., 2:], {})]
    rows, images = zip(*count_correct(parameters, blocks, np.array([6, 2, 6, 0, 6]), 7), strict=True)
    assert [list(np.flatnonzero(each)) for each in images] == [[0, 1, 2, 3], [0, 1, 2], [0], [4], [], []]
    found = [
        (row["label_shift"], row["eps"], row["attacks"], row["correct"], row["total"], row["classes"]) for row in rows
    ]
    assert found == [
        (0, 0.0, 0, 4, 5, 7),
        (0, 0.5, 1, 3, 5, 7),
        (0, 0.5, 2, 1, 5, 7),
        (3, 0.0, 0, 1, 5, 7),
        (3, 0.5, 1, 0, 5, 7),
        (3, 0.5, 2, 0, 5, 7),
    ]
    # Three of the five images are of class 6. With shifted labels as many are of one class.
    assert [row["most_frequent"] for row in rows] == [3] * 6
