"""Where curves turn, level off and cross, on curves whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from robustfeatures.experiments.shared.turning_points import (
    Transition,
    find_plateau,
    find_steepest_fall,
    fit_transition,
    smooth,
)
from robustfeatures.pipeline.study.checks import PUBLISHED
from robustfeatures.pipeline.study.yaml import read_yaml

EPOCHS = np.arange(1, 121)


@pytest.mark.parametrize("knot", [1, 7, 40, 120])
def test_a_curve_levels_off_at_its_knot(knot: int) -> None:
    assert find_plateau(EPOCHS, 10 - 0.3 * np.minimum(EPOCHS, knot)) == knot


def test_noise_moves_the_knot_little() -> None:
    """A rise of 60 points over 30 epochs under noise of 3: the knot is known to about 3 / 2 epochs."""
    rng = np.random.default_rng(0)
    clean = 2.0 * np.minimum(EPOCHS, 30)
    found = [find_plateau(EPOCHS, clean + rng.normal(0, 3, len(EPOCHS))) for _ in range(20)]
    assert np.abs(np.array(found) - 30).max() <= 3


def test_a_flat_curve_levels_off_at_once() -> None:
    assert find_plateau(EPOCHS, np.full(len(EPOCHS), 5.0)) == 1


@pytest.mark.parametrize("window", [1, 2, 3, 5])
def test_a_step_falls_fastest_in_its_middle_whatever_the_window(window: int) -> None:
    """A slow decline of 0.1 a step, and a fall of 50 between 40 and 42."""
    values = pd.Series(90 - 0.1 * EPOCHS - 25.0 * np.clip(EPOCHS - 40, 0, 2))
    assert find_steepest_fall(EPOCHS, smooth(values, window)) == pytest.approx(41, abs=0.5)


@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [1.0]])
def test_a_curve_that_never_falls_has_no_steepest_fall(values: list[float]) -> None:
    assert math.isnan(find_steepest_fall(range(len(values)), values))


def test_smoothing_is_a_centred_mean() -> None:
    found = smooth(pd.Series([0.0, 3.0, 6.0, 0.0]), 3)
    assert list(found) == [1.5, 3.0, 3.0, 3.0]


def test_a_straight_transition() -> None:
    """From -60 at 0 to 40 at 10: zero at 6, and the middle half of the rise from 2.5 to 7.5."""
    places = np.arange(11.0)
    found = fit_transition(places, -60 + 10 * places)
    assert (found.crossing, found.begins, found.ends) == pytest.approx((6, 2.5, 7.5))


@pytest.mark.parametrize(("values", "end"), [([-3.0, -2.0, -1.0], 2.0), ([1.0, 2.0, 3.0], 0.0)])
def test_a_curve_that_never_crosses_is_given_an_end(values: list[float], end: float) -> None:
    assert fit_transition([0.0, 1.0, 2.0], values) == Transition(False, end, 0.0, 2.0)


def test_the_papers_own_transition() -> None:
    """Table 5: "a narrow middle ground around L2 = 2.5e-4"."""
    rows = pd.DataFrame(read_yaml(PUBLISHED / "two-pathways-2021.yaml")["B3"][0]["rows"])
    rows = rows[(rows["augmentation"] == "no") & (rows["learning_rate"] == 0.1)]
    wide = rows.pivot_table(index="weight_decay", columns="test_set", values="accuracy")
    assert len(wide) == 10
    found = fit_transition(wide.index.to_numpy(), (wide["D"] - wide["D_shift"]).to_numpy())
    assert 2.5e-4 < found.crossing < 3e-4
    assert 2e-4 < found.begins < found.ends < 3e-4
