"""Patch data against Definition 2.2 and the assumptions."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from robustfeatures.theory.patch_data import (
    Patches,
    draw,
    features,
    keep_patches,
    list_other_classes,
    plant_and_lower_features,
    plant_features,
    rotate_features,
)
from robustfeatures.theory.settings import PatchConstants
from tests.theory.settings import SMALL


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_patch_is_a_coefficient_times_a_feature_plus_noise() -> None:
    data = draw(SMALL, 2000, generator(), torch.float64)
    robust, non_robust = features(SMALL, data.points)
    torch.testing.assert_close(
        torch.cat([robust, non_robust]) @ torch.cat([robust, non_robust]).T, torch.eye(6, dtype=torch.float64)
    )
    kinds = torch.where(data.robust[..., None], robust[data.labels][:, None], non_robust[data.labels][:, None])
    noise = data.points - data.coefficients[..., None] * kinds
    count = noise.numel()
    # Four standard errors of the mean and of the standard deviation of a normal law.
    assert abs(float(noise.mean())) < 4 * SMALL.noise / math.sqrt(count)
    assert float(noise.std()) == pytest.approx(SMALL.noise, abs=4 * SMALL.noise / math.sqrt(2 * count))


def test_labels_and_places_are_uniform_and_coefficients_concentrate() -> None:
    count = 6000
    data = draw(SMALL, count, generator())
    assert (data.robust.sum(dim=1) == SMALL.robust_patches).all()
    for observed, probability in (
        (data.labels.bincount() / count, 1 / SMALL.classes),
        (data.robust.float().mean(dim=0), SMALL.robust_patches / SMALL.patches),
    ):
        error = 4 * math.sqrt(probability * (1 - probability) / count)
        assert (observed - probability).abs().max() < error
    for kind, mean in ((data.robust, SMALL.alpha), (~data.robust, SMALL.beta)):
        relative = data.coefficients[kind] / mean - 1
        assert relative.abs().max() <= SMALL.spread * (1 + 1e-6)
        # A uniform law on an interval of half-width s has the standard deviation s / sqrt(3).
        assert abs(float(relative.mean())) < 4 * SMALL.spread / math.sqrt(3 * relative.numel())


def test_assumption_2_3_holds_for_what_is_drawn() -> None:
    """The ratios are those of the least favourable draw, so no draw is below them."""
    data = draw(SMALL, 500, generator())
    ratios = SMALL.ratios()
    strong = torch.where(data.robust, data.coefficients, torch.inf).amin(dim=1)
    weak = torch.where(data.robust, 0.0, data.coefficients).amax(dim=1)
    assert (strong / weak).min() >= ratios["robust features are stronger"] * (1 - 1e-6) > 1
    powers = data.coefficients**SMALL.exponent
    denser = (powers * ~data.robust).sum(dim=1) / (powers * data.robust).sum(dim=1)
    assert denser.min() >= ratios["non-robust features are denser"] * (1 - 1e-6) > 1
    quiet = draw(replace(SMALL, noise=0.0), 200, generator()).points
    labels = draw(replace(SMALL, noise=0.0), 200, generator()).labels
    distances = (quiet[:, None] - quiet[None]).norm(dim=3).amax(dim=2)
    apart = distances[labels[:, None] != labels[None]]
    assert apart.min() >= SMALL.radius * ratios["the radius is small"] > SMALL.radius


def test_other_classes_are_all_but_the_own() -> None:
    labels = torch.tensor([0, 2, 1])
    targets = list_other_classes(labels, 3)
    assert [set(each) for each in targets.T.tolist()] == [{1, 2}, {0, 1}, {0, 2}]


def products(points: torch.Tensor, kind: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """<X(p), the feature of the class of each point>, (n, P)."""
    return torch.einsum("npd,nd->np", points, kind[classes])


def perturbed(radius: float) -> tuple[PatchConstants, Patches, torch.Tensor]:
    constants = replace(SMALL, radius=radius)
    data = draw(constants, 100, generator())
    return constants, data, list_other_classes(data.labels, constants.classes)[1]


@pytest.mark.parametrize("radius", [0.25, 0.35, 0.6])
def test_perturbations_stay_in_the_ball_and_touch_what_they_say(radius: float) -> None:
    constants, data, targets = perturbed(radius)
    robust, _ = features(constants, data.points)
    rotated, planted, lowered = (
        move(data, constants, targets) for move in (rotate_features, plant_features, plant_and_lower_features)
    )
    for change in (rotated, planted, lowered):
        assert change.norm(dim=2).max() <= radius * (1 + 1e-6)
    for change in (rotated, planted):
        assert (change[data.robust] == 0).all()
    torch.testing.assert_close(products(planted, robust, targets), radius * (~data.robust).float())
    torch.testing.assert_close(products(lowered, robust, targets), radius * (~data.robust).float())
    torch.testing.assert_close(products(lowered, robust, data.labels), -radius * data.robust.float())


def test_lowering_stops_at_zero() -> None:
    constants, data, targets = perturbed(2.0)
    robust, _ = features(constants, data.points)
    moved = data.points + plant_and_lower_features(data, constants, targets)
    # Only the noise is left of the own robust feature.
    assert products(moved, robust, data.labels)[data.robust].abs().max() < 6 * SMALL.noise


@pytest.mark.parametrize(
    ("radius", "outweighed"),
    # beta / sqrt(2) is 0.283, and sqrt(2) beta is 0.566; both times 1 +- 0.05.
    [(0.25, False), (0.31, True), (0.6, True)],
)
def test_rotated_features_outweigh_the_own_ones_from_beta_over_root_2_on(radius: float, outweighed: bool) -> None:
    constants, data, targets = perturbed(radius)
    _, non_robust = features(constants, data.points)
    quiet = data.coefficients[..., None] * non_robust[data.labels][:, None]
    moved = (quiet + rotate_features(data, constants, targets))[~data.robust]
    own, other = (
        torch.einsum("pd,pd->p", moved, non_robust[kind][:, None].expand(-1, SMALL.patches, -1)[~data.robust])
        for kind in (data.labels, targets)
    )
    assert bool((other > own).all()) == outweighed
    # The whole replacement of Theorem 4.3 fits into the largest ball alone.
    assert bool((own.abs() < 1e-6).all()) == (radius == 0.6)


def test_a_representative_holds_one_kind_of_feature() -> None:
    data = draw(replace(SMALL, noise=0.0), 20, generator())
    robust, non_robust = features(SMALL, data.points)
    alone = keep_patches(data.points, data.robust)
    assert (alone @ non_robust.T == 0).all()
    torch.testing.assert_close((alone @ robust.T).sum(dim=(1, 2)), (data.coefficients * data.robust).sum(dim=1))


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"beta": 1.2}, "robust features are stronger"),
        ({"patches": 16}, "non-robust features are denser"),
        ({"dimension": 5}, "features are orthogonal"),
        ({"radius": 1.1}, "the radius is small"),
        ({"radius": 0.29}, "the radius lets non-robust features be outweighed"),
        ({"ascent_rate": 0.01}, "ascent is faster than descent"),
        ({"noise": 0.5}, "noise is small"),
    ],
)
def test_a_broken_assumption_shows_in_its_own_ratio(change: dict[str, float], broken: str) -> None:
    ratios = replace(SMALL, **change).ratios()
    assert ratios[broken] <= 1
    assert isinstance(SMALL, PatchConstants)
    assert min(SMALL.ratios().values()) > 1
