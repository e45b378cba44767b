"""The hand-built minima against closed forms, and the planted features that Proposition 3.2 leaves out."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pandas as pd
import pytest
import torch

from robustfeatures.experiments import d2_two_minima as d2
from robustfeatures.pipeline.study.study import read_study
from robustfeatures.pipeline.study.validation import validate
from robustfeatures.theory.patch_data import draw, list_other_classes, plant_features
from robustfeatures.theory.patch_minima import (
    MINIMA,
    build_minimum,
    largest_ratio,
    measure,
    noiseless_risk,
    planting_ratio,
)
from robustfeatures.theory.patch_network import activation, logits, loss_and_gradient
from robustfeatures.theory.settings import PatchConstants
from tests.conftest import REPOSITORY
from tests.runs import MemoryRun
from tests.theory.settings import SMALL

QUIET = replace(SMALL, noise=0.0, spread=0.0)


@pytest.mark.parametrize("minimum", MINIMA)
def test_the_risk_has_the_closed_form_and_vanishes(minimum: str) -> None:
    data = draw(QUIET, 20, torch.Generator().manual_seed(0), torch.float64)
    risks = []
    for gamma in (0.1, 1.0, 3.0, 30.0):
        weights = build_minimum(QUIET, minimum, gamma, data.points)
        risk, _ = loss_and_gradient(weights, data.points, data.labels, activation(QUIET))
        assert float(risk) == pytest.approx(noiseless_risk(QUIET, minimum, gamma), rel=1e-9, abs=1e-15)
        risks.append(float(risk))
    # For large gamma the margin is m |J| (gamma c - (1 - 1/q) rho).
    count, coefficient = {"robust": (1, 1.0), "non-robust": (39, 0.4)}[minimum]
    margin = SMALL.width * count * (30 * coefficient - 2 / 3)
    assert risks[-1] == pytest.approx(2 * math.exp(-margin), rel=1e-6, abs=1e-15)
    assert risks == sorted(risks, reverse=True)


def test_planted_features_outweigh_the_own_ones_at_every_scale() -> None:
    """F_j >= ratio F_y for every gamma, with equality where all products are in the polynomial part."""
    assert planting_ratio(QUIET) > QUIET.ratios()["non-robust features are denser"] > 1
    data = draw(QUIET, 20, torch.Generator().manual_seed(0), torch.float64)
    targets = list_other_classes(data.labels, QUIET.classes)[1]
    moved = data.points + plant_features(data, QUIET, targets)
    rows = torch.arange(20)
    for gamma in (1e-3, 0.1, 1.0, 3.0, 100.0):
        outputs = logits(build_minimum(QUIET, "robust", gamma, moved), moved, activation(QUIET))
        ratio = outputs[rows, targets] / outputs[rows, data.labels]
        assert (ratio >= planting_ratio(QUIET) * (1 - 1e-9)).all()
        if gamma <= 1:
            assert float(ratio.mean()) == pytest.approx(planting_ratio(QUIET), rel=1e-6)


def measured(constants: PatchConstants, scales: list[float]) -> pd.DataFrame:
    rows = measure(
        MemoryRun(),
        constants=asdict(constants),
        seed=0,
        scales=scales,
        test_samples=60,
        pgd_steps=10,
        pgd_relative_step_size=0.25,
        pgd_random_starts=1,
    )
    return pd.DataFrame(rows).set_index(["minimum", "scale"])


def test_propositions_as_measured() -> None:
    """Large scale: both minima are right on clean points; rotated non-robust features break the non-robust one alone,
    planted robust features break the robust one alone."""
    found = measured(SMALL, [0.5, 30.0])
    assert (found.loc[(slice(None), 30.0), "clean"] == 1).all()
    assert (found.loc[(slice(None), 30.0), "risk"] < 1e-6).all()
    assert found.loc[("non-robust", 30.0), "rotated"] == 0
    assert found.loc[("robust", 30.0), "rotated"] == 1
    assert found.loc[("robust", 30.0), "planted"] == 0
    assert (found["certified"] <= found["robust"]).all()


@pytest.fixture(scope="module")
def small_radius() -> PatchConstants:
    """The setting of the study `theory` in which both conclusions can hold."""
    study = read_study(REPOSITORY / "workflow" / "studies" / "theory.yaml")
    return validate(d2.Settings, dict(study.experiments["D2"])).settings["small-radius"]


def test_the_small_radius_allows_both_conclusions(small_radius: PatchConstants) -> None:
    assert small_radius.beta / math.sqrt(2) < small_radius.radius < small_radius.beta
    assert planting_ratio(small_radius) == pytest.approx(150 * 0.15**3)
    assert largest_ratio(small_radius) == pytest.approx(151 * (0.15 / 0.85) ** 3)
    assert planting_ratio(small_radius) < largest_ratio(small_radius) < 1


@pytest.mark.slow
def test_both_propositions_hold_at_the_small_radius_and_scale_1(small_radius: PatchConstants) -> None:
    """A bound excludes every perturbation at scale 1; at a large scale planting wins, as with larger radii."""
    found = measured(small_radius, [1.0, 30.0])
    assert (found.loc[(slice(None), 1.0), "risk"] < 0.01).all()
    assert found.loc[("non-robust", 1.0), "rotated"] == 0
    assert found.loc[("robust", 1.0), "certified"] == 1
    assert found.loc[("robust", 30.0), "planted"] == 0
