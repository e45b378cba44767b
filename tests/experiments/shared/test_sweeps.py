"""What is read off a sweep, against scipy and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from robustfeatures.experiments.shared.sweeps import find_crossing, geometric_interval, rank_correlation


def test_where_a_gain_ends() -> None:
    sizes = [10.0, 100.0, 1000.0]
    assert find_crossing(sizes, [1.0, 1.0, -1.0]) == pytest.approx(100 * 10**0.5)
    assert find_crossing(sizes, [3.0, -1.0, -5.0]) == pytest.approx(10**1.75)
    assert find_crossing(sizes, [1.0, -1.0, 0.0]) == pytest.approx(10**1.5)
    # The last turn is the one that counts.
    assert find_crossing([*sizes, 1e4], [1.0, -1.0, 2.0, -2.0]) == pytest.approx(10**3.5)
    for never in ([-1.0, -1.0, -1.0], [1.0, 1.0, 1.0], [1.0, -1.0, 1.0]):
        assert np.isnan(find_crossing(sizes, never))


def test_the_interval_of_a_size_is_that_of_its_logarithm() -> None:
    values = [10.0, 100.0, 1000.0]
    half = stats.t.ppf(0.975, 2) / 3**0.5
    assert geometric_interval([*values, float("nan")]) == pytest.approx((100, 10 ** (2 - half), 10 ** (2 + half)))
    assert np.isnan(geometric_interval([10.0, float("nan")])).all()


def test_the_rank_correlation_is_scipys_and_a_constant_has_none() -> None:
    assert rank_correlation([0, 1, 2, 3], [99.31, 99.36, 98.99, 97.37]) == pytest.approx(-0.8)
    assert rank_correlation([0, 1, 2], [5, 5, 5]) == 0
