"""The hand-built minima against closed forms, and the planted features that Proposition 3.2 leaves out."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pandas as pd
import pytest
import torch

from robustfeatures.theory.patch_data import draw, draw_other_classes, plant_features
from robustfeatures.theory.patch_minima import MINIMA, build_minimum, measure, noiseless_risk, planting_ratio
from robustfeatures.theory.patch_network import activation, logits, loss_and_gradient
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
    targets = draw_other_classes(data.labels, QUIET.classes, torch.Generator().manual_seed(1))
    moved = data.points + plant_features(data, QUIET, targets)
    rows = torch.arange(20)
    for gamma in (1e-3, 0.1, 1.0, 3.0, 100.0):
        outputs = logits(build_minimum(QUIET, "robust", gamma, moved), moved, activation(QUIET))
        ratio = outputs[rows, targets] / outputs[rows, data.labels]
        assert (ratio >= planting_ratio(QUIET) * (1 - 1e-9)).all()
        if gamma <= 1:
            assert float(ratio.mean()) == pytest.approx(planting_ratio(QUIET), rel=1e-6)


def test_propositions_as_measured() -> None:
    """Large scale: both minima are right on clean points; the replacement breaks the non-robust one alone, planted
    robust features break the robust one alone."""
    rows = measure(
        MemoryRun(),
        constants=asdict(SMALL),
        seed=0,
        scales=[0.5, 30.0],
        test_samples=60,
        pgd_steps=10,
        pgd_relative_step_size=0.25,
    )
    found = pd.DataFrame(rows).set_index(["minimum", "scale"])
    assert (found.loc[(slice(None), 30.0), "clean"] == 1).all()
    assert (found.loc[(slice(None), 30.0), "risk"] < 1e-6).all()
    assert found.loc[("non-robust", 30.0), "replaced"] == 0
    assert found.loc[("robust", 30.0), "replaced"] == 1
    assert found.loc[("robust", 30.0), "planted"] == 0
