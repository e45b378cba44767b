"""Accuracies of the patch network: a point counts as robust if it withstands every attack and every start."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from robustfeatures.theory.patch_data import Patches, draw
from robustfeatures.theory.patch_evaluation import Evaluation
from robustfeatures.theory.patch_network import activation, is_right, one_step, pgd
from robustfeatures.theory.patch_training import draw_initial_weights
from robustfeatures.theory.settings import PatchConstants
from tests.theory.settings import SMALL

# Every point is its features alone.
QUIET = replace(SMALL, noise=0.0, spread=0.0)


def draw_points(constants: PatchConstants, count: int) -> Patches:
    return draw(constants, count, torch.Generator().manual_seed(0))


def robust_filters(*lengths: float) -> Tensor:
    """All filters of a class are its robust feature, of these lengths."""
    filters = torch.eye(QUIET.classes, QUIET.dimension)[:, None].expand(-1, QUIET.width, -1)
    return torch.tensor(lengths)[:, None, None] * filters


@pytest.mark.parametrize(("random_starts", "accuracy"), [(0, 1.0), (1, 0.0)])
def test_one_start_that_breaks_a_point_is_enough(random_starts: int, accuracy: float) -> None:
    """Without noise PGD from the point itself plants nothing; from a random start it does (`test_patch_network`)."""
    evaluation = Evaluation(
        QUIET, draw_points(QUIET, 60), 0, steps=20, relative_step_size=0.25, random_starts=random_starts
    )
    assert evaluation(robust_filters(1.0, 1.0, 1.0))["pgd"] == accuracy


def test_one_other_class_that_fools_is_enough() -> None:
    """Only the third class has filters long enough to win where its feature is planted.

    A planted feature wins if 39 s(eps L) > s(1): 39 patches hold no robust feature. For eps = 1/4 and s(z) = z^3 / 3 up
    to 1, this is 39 L^3 / 64 > 1, true for the length L = 1.5 and not for 1.
    """
    radius, long = 0.25, 1.5
    assert 39 * (radius * long) ** 3 > 1 > 39 * radius**3
    small = replace(QUIET, radius=radius)
    data = draw_points(small, 60)
    found = Evaluation(small, data, 0, steps=20, relative_step_size=0.25, random_starts=0)(robust_filters(1, 1, long))
    own = (data.labels == 2).double().mean().item()
    assert found["robust"] == pytest.approx(own)
    # The accuracy under one explicit attack is a mean over the other classes: one of two fools all points of two.
    assert found["planted"] == pytest.approx(own + (1 - own) / 2)


def test_the_step_of_training_is_one_of_the_attacks() -> None:
    """Filters of length 20 along an axis that no feature has: a step of 0.1 along them lowers the own product by 2.

    It was 1, so no class is left with an output, and a tie is an error. Planted features of length 0.1 are too short.
    PGD takes one step, a hundredth of the radius long.
    """
    small = replace(QUIET, radius=0.1)
    filters = robust_filters(1.0, 1.0, 1.0).clone()
    unused = 2 * QUIET.classes
    for label in range(QUIET.classes):
        filters[label, :, unused + label] = (20**2 - 1) ** 0.5
    data = draw_points(small, 60)
    found = Evaluation(small, data, 0, steps=1, relative_step_size=0.01, random_starts=0)(filters)
    assert {name: found[name] for name in ("clean", "rotated", "planted", "planted_and_lowered", "pgd")} == {
        "clean": 1.0,
        "rotated": 1.0,
        "planted": 1.0,
        "planted_and_lowered": 1.0,
        "pgd": 1.0,
    }
    assert found["one_step"] == found["robust"] == 0.0


def test_robust_is_what_withstands_all_attacks_together() -> None:
    """One step, each explicit perturbation and PGD from each start, put together point by point.

    PGD takes two short steps, so that other attacks fool points that it does not.
    """
    varied = replace(SMALL, radius=0.2, spread=0.3)
    data, relu = draw_points(varied, 200), activation(varied)
    weights = draw_initial_weights(varied, torch.Generator().manual_seed(1))
    for label in range(3):
        weights[label, :, [label, 3 + label]] += torch.tensor([0.4, 0.3])
    evaluation = Evaluation(varied, data, 0, steps=2, relative_step_size=0.3, random_starts=2)
    found = evaluation(weights)

    def right(moved: Tensor) -> Tensor:
        return is_right(weights, moved, data.labels, relu)

    def attacked(start: Tensor) -> Tensor:
        return pgd(weights, data.points, data.labels, varied, start=start, steps=2, relative_step_size=0.3)

    assert len(evaluation.starts) == 3
    by_start = torch.stack([right(attacked(start)) for start in evaluation.starts])
    by_pgd = by_start.all(dim=0)
    assert by_pgd.sum() < by_start.sum(dim=1).min()
    assert found["pgd"] == pytest.approx(by_pgd.double().mean().item())
    explicit = torch.stack([right(moved) for versions in evaluation.explicit.values() for moved in versions])
    single = right(one_step(weights, data.points, data.labels, varied))
    every = right(data.points) & single & explicit.all(dim=0) & by_pgd
    assert found["robust"] == pytest.approx(every.double().mean().item())
    assert 0 < found["robust"] < min(found["pgd"], explicit.all(dim=0).double().mean().item())
