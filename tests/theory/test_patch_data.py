"""Patch data against Definition 2.2 and the assumptions."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from robustfeatures.theory.patch_data import (
    draw,
    draw_other_classes,
    features,
    keep_patches,
    plant_features,
    replace_features,
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
    """The ratios are those of the least favourable draw, so no draw may fall below them."""
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


def test_perturbations_stay_in_the_ball_and_touch_what_they_say() -> None:
    data = draw(SMALL, 100, generator())
    targets = draw_other_classes(data.labels, SMALL.classes, generator(1))
    assert (targets != data.labels).all()
    assert set(targets.tolist()) == {0, 1, 2}
    replaced, planted = replace_features(data, SMALL, targets), plant_features(data, SMALL, targets)
    for change in (replaced, planted):
        assert change.norm(dim=2).max() <= SMALL.radius * (1 + 1e-6)
        assert (change[data.robust] == 0).all()
    robust, non_robust = features(SMALL, data.points)
    swapped = torch.einsum("npd,kd->npk", data.points + replaced, non_robust)
    own = swapped.gather(2, data.labels[:, None, None].expand(-1, SMALL.patches, 1)).squeeze(2)
    # Only the noise is left of the own non-robust feature.
    assert own[~data.robust].abs().max() < 6 * SMALL.noise
    gained = torch.einsum("npd,nd->np", planted, robust[targets])
    torch.testing.assert_close(gained, SMALL.radius * (~data.robust).float())


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
        ({"radius": 0.5}, "the radius lets non-robust features be replaced"),
        ({"ascent_rate": 0.01}, "ascent is faster than descent"),
        ({"noise": 0.5}, "noise is small"),
    ],
)
def test_a_broken_assumption_shows_in_its_own_ratio(change: dict[str, float], broken: str) -> None:
    ratios = replace(SMALL, **change).ratios()
    assert ratios[broken] <= 1
    assert isinstance(SMALL, PatchConstants)
    assert min(SMALL.ratios().values()) > 1
