"""Success of attacks through a representation: which pairs are attacked, and two extractors with a known outcome."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from robustfeatures.attacks.representation_pgd import representation_pgd
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.measurements.representation_attacks import draw_pairs, measure
from robustfeatures.models import create
from robustfeatures.models.network import Network
from tests.conftest import Digits
from tests.measurements.conftest import split_of
from tests.runs import MemoryRun

SETTINGS: dict[str, Any] = {"split": "test", "images_per_class": 3, "norm": "linf", "precision": "float32", "seed": 0}
TESTED = slice(1000, 1200)


def test_every_ordered_pair_of_classes_is_attacked(digits: Digits) -> None:
    data = split_of(digits, TESTED)
    rows, goals, targets = draw_pairs(data, 3, seed=0)
    pairs = Counter(zip(data.labels[rows].tolist(), goals.tolist(), strict=True))
    assert pairs == {(source, goal): 3 for source in range(10) for goal in range(10) if source != goal}
    np.testing.assert_array_equal(data.labels[targets], goals)
    # Each class is attacked with the same images, and each time after another draw of the target.
    assert len(set(rows.tolist())) == 30
    assert len(set(targets.tolist())) > 60
    np.testing.assert_array_equal(draw_pairs(data, 3, seed=0)[2], targets)
    others = draw_pairs(data, 3, seed=1)
    assert (others[2] != targets).any()
    assert set(others[0].tolist()) != set(rows.tolist())


def test_a_small_class_gives_what_it_has(digits: Digits) -> None:
    data = split_of(digits, slice(1000, 1030))
    rows, _, _ = draw_pairs(data, 1000, seed=0)
    assert sorted(set(rows.tolist())) == list(range(30))


@pytest.fixture
def pixels() -> Network:
    """A network whose representation is the image."""
    torch.manual_seed(0)
    return create("linear", num_classes=10, image_shape=(1, 8, 8))


def run_measurement(data: ImageDataset, extractor: Network, victim: Network, eps: float) -> list[dict[str, Any]]:
    inputs = {
        "data": {"test": data},
        "extractor": extractor,
        "victim-standard": victim,
    }
    given = {**SETTINGS, "victims": {"standard": "victim-standard"}}
    return list(measure(MemoryRun(inputs), eps=eps, step_size=eps / 20, steps=30, **given))  # type: ignore[arg-type]


def test_in_a_ball_that_holds_all_images_the_target_is_reached(
    digits: Digits,
    network: Network,
    pixels: Network,
) -> None:
    """Through the pixels themselves each image becomes its target, so the victim sees targets."""
    data = split_of(digits, TESTED)
    found = run_measurement(data, pixels, network, eps=1.0)
    rows, goals, targets = draw_pairs(data, 3, seed=0)
    with torch.no_grad():
        seen, shown = (network(torch.from_numpy(data.images[each])).argmax(dim=1).numpy() for each in (rows, targets))
    assert {(row["source"], row["target"], row["total"]) for row in found} == {
        (str(source), str(goal), 3) for source in range(10) for goal in range(10) if source != goal
    }
    assert sum(row["before"] for row in found) == (seen == goals).sum()
    # Signed steps of 0.05 leave each pixel within that of its target: few victims' answers hang on it.
    assert abs(sum(row["reached"] for row in found) - (shown == goals).sum()) <= 0.02 * len(rows)


def test_nothing_is_reached_without_a_ball(digits: Digits, network: Network) -> None:
    found = run_measurement(split_of(digits, TESTED), network, network, eps=0.0)
    assert all(row["reached"] == row["before"] for row in found)


def test_the_attack_has_the_split_norm_and_radius_that_are_asked_for(digits: Digits, network: Network) -> None:
    """Beside the attack of tests/attacks on the drawn pairs; there is no test split."""
    data = split_of(digits, TESTED)
    attack: dict[str, Any] = {"norm": "l2", "eps": 0.75, "step_size": 0.25, "steps": 6}
    inputs = {"data": {"train": data}, "extractor": network, "victim": network}
    asked = {**SETTINGS, **attack, "split": "train"}
    found = measure(MemoryRun(inputs), victims={"standard": "victim"}, **asked)
    rows, goals, targets = draw_pairs(data, 3, seed=0)
    images, shown = (torch.from_numpy(data.images[each]) for each in (rows, targets))
    with torch.no_grad():
        predicted = network(representation_pgd(network, images, shown, **attack)).argmax(dim=1).numpy()
    # Batch norm is folded in the one and not in the other: an image at the border may change sides.
    assert sum(int(row["reached"]) for row in found) == pytest.approx((predicted == goals).sum(), abs=2)
