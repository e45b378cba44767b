"""What is read off a sweep, against scipy and by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from robustfeatures.experiments.shared.sweeps import (
    find_crossing,
    geometric_interval,
    plot_panels,
    rank_correlation,
)


def test_where_a_gain_ends() -> None:
    sizes = [10.0, 100.0, 1000.0]
    assert find_crossing(sizes, [1.0, 1.0, -1.0]) == pytest.approx(100 * 10**0.5)
    assert find_crossing(sizes, [3.0, -1.0, -5.0]) == pytest.approx(10**1.75)
    assert find_crossing(sizes, [1.0, -1.0, 0.0]) == pytest.approx(10**1.5)
    # The last turn is the one that counts.
    assert find_crossing([*sizes, 1e4], [1.0, -1.0, 2.0, -2.0]) == pytest.approx(10**3.5)
    assert find_crossing(sizes, [1.0, 0.0, 0.0]) == pytest.approx(100)
    for never in ([-1.0, -1.0, -1.0], [1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [1.0, 1.0, 0.0]):
        assert np.isnan(find_crossing(sizes, never))


def test_the_interval_of_a_size_is_that_of_its_logarithm() -> None:
    values = [10.0, 100.0, 1000.0]
    half = stats.t.ppf(0.975, 2) / 3**0.5
    assert geometric_interval(values) == pytest.approx((100, 10 ** (2 - half), 10 ** (2 + half)))
    middle, low, high = geometric_interval([10.0])
    assert middle == pytest.approx(10)
    assert np.isnan([low, high]).all()


def test_a_gain_that_does_not_end_in_every_seed_has_no_size() -> None:
    assert np.isnan(geometric_interval([10.0, 100.0, float("nan")])).all()


def test_the_rank_correlation_is_scipys_and_a_constant_has_none() -> None:
    assert rank_correlation([0, 1, 2, 3], [99.31, 99.36, 98.99, 97.37]) == pytest.approx(-0.8)
    assert rank_correlation([0, 1, 2], [5, 5, 5]) == 0


def test_a_crossing_is_seen_beside_a_panel_without_one() -> None:
    """The strips share their limits: one without a crossing, in the last panel, hides none of the first."""
    rows = pd.DataFrame(
        [
            {"norm": norm, "samples": samples, "eps_train": eps, "seed": 0, "accuracy": 90.0}
            for norm in ("L2", "Linf")
            for samples in (10, 100)
            for eps in (0.0, 0.5, 1.0)
        ]
    )
    crossings = pd.DataFrame(
        [
            {"norm": "L2", "eps_train": 0.5, "crossing": 20.0, "crossing_low": 15.0, "crossing_high": 30.0},
            {"norm": "L2", "eps_train": 1.0, "crossing": 50.0, "crossing_low": 40.0, "crossing_high": 60.0},
            {"norm": "Linf", "eps_train": 0.5, "crossing": None, "crossing_low": None, "crossing_high": None},
        ]
    )
    figure = plot_panels(rows, x="samples", xlabel="images", line="eps_train", log_x=True, crossings=crossings)
    strip = figure.axes[2]
    low, high = strip.get_ylim()
    marks = [line.get_ydata()[0] for line in strip.lines if line.get_marker() not in ("None", "|")]
    assert marks == [-1, -2]
    assert all(low < mark < high for mark in marks)
    assert [text.get_text() for text in strip.texts] == ["20", "50"]
    assert len(strip.get_yticks()) == 0
