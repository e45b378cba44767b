"""Transfer rates: the definition image by image, a network to itself, and to one that the attack cannot move."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from robustfeatures.attacks import pgd
from robustfeatures.measurements.transfer import Predictions, TransferCounts, count_transfers, measure
from robustfeatures.models import create
from robustfeatures.models.network import Network
from tests.conftest import Digits
from tests.measurements.conftest import split_of
from tests.runs import MemoryRun

SETTINGS: dict[str, Any] = {
    "split": "test",
    "precision": "float32",
    "norm": "l2",
    "eps": 0.6,
    "step_size": 0.15,
    "steps": 8,
}


@pytest.mark.parametrize("targeted", [False, True])
def test_the_counts_image_by_image(targeted: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    labels, *predicted = torch.randint(0, 3, (5, 500), generator=generator)
    source, target = Predictions(predicted[0], predicted[1]), Predictions(predicted[2], predicted[3])
    both_right = fooled = transferred = 0
    for label, clean, attacked, other, other_attacked in zip(
        labels.tolist(), *(each.tolist() for each in predicted), strict=True
    ):
        if clean != label or other != label:
            continue
        both_right += 1
        wanted = {(label + 1) % 3} if targeted else {0, 1, 2} - {label}
        if attacked in wanted:
            fooled += 1
            transferred += other_attacked in wanted
    assert 0 < transferred < fooled < both_right < 500
    found = count_transfers(labels, source, target, targeted=targeted, num_classes=3)
    assert found == TransferCounts(500, both_right, fooled, transferred)


def test_to_itself_to_a_constant_and_to_another(network: Network, digits: Digits) -> None:
    """What fools a network fools its copy. Nothing fools a network that always says 3. Another one is in between."""
    constant = create("small-cnn", num_classes=10, image_shape=(1, 8, 8))
    torch.nn.init.zeros_(constant.head.weight)
    with torch.no_grad():
        constant.head.bias.copy_(torch.eye(10)[3])
    torch.manual_seed(1)
    other = create("linear", num_classes=10, image_shape=(1, 8, 8))
    rows = slice(1000, 1200)
    images, labels = digits.images[rows], digits.labels[rows]
    inputs = {
        "data": {"test": split_of(digits, rows)},
        "source": network,
        "target-itself": network,
        "target-constant": constant,
        "target-other": other,
    }
    roles = {name: f"target-{name}" for name in ("itself", "constant", "other")}
    found = {(row["attack"], row["target"]): row for row in measure(MemoryRun(inputs), targets=roles, **SETTINGS)}
    assert len(found) == 6
    attack = {name: value for name, value in SETTINGS.items() if name not in ("split", "precision")}
    for kind, targeted in (("untargeted", False), ("targeted", True)):
        goal = (labels + 1) % 10 if targeted else labels
        adversarial = pgd(network, images, goal, targeted=targeted, **attack)
        with torch.no_grad():
            right = network(images).argmax(1) == labels
            attacked, others = network(adversarial).argmax(1), other(adversarial).argmax(1)
            other_right = other(images).argmax(1) == labels
        succeeded = (attacked == goal) if targeted else (attacked != goal)
        itself = found[kind, "itself"]
        assert itself["images"] == 200
        assert itself["both_right"] == int(right.sum())
        # The network runs with batch norm folded in, so an image on the boundary may fall to either side.
        assert itself["fooled"] == pytest.approx(int((right & succeeded).sum()), abs=2)
        assert itself["transferred"] == itself["fooled"] > 0
        assert found[kind, "constant"]["both_right"] == int((right & (labels == 3)).sum())
        assert found[kind, "constant"]["transferred"] == 0
        eligible = right & other_right & succeeded
        reached = (others == goal) if targeted else (others != goal)
        assert found[kind, "other"]["fooled"] == pytest.approx(int(eligible.sum()), abs=2)
        assert found[kind, "other"]["transferred"] == pytest.approx(int((eligible & reached).sum()), abs=2)
