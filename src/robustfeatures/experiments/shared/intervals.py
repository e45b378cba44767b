"""Intervals: of a mean over seeds, and of shares."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from robustfeatures.experiments.shared.units import SHARES, percent

CONFIDENCE = 0.95

# The ends of an interval.
Interval = tuple[float, float]


def confidence_interval(values: ArrayLike) -> Interval:
    """The ends of the 95 % interval of the mean (Student's t); NaN for fewer than two values, or values not finite."""
    values = np.asarray(values, dtype=float)
    if len(values) < 2 or not np.isfinite(values).all():
        return float("nan"), float("nan")
    middle = float(values.mean())
    half = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2) * values.std(ddof=1) / np.sqrt(len(values)))
    return middle - half, middle + half


def unseen_share(total: int) -> float:
    """The share of images, in percent, that may have an outcome which none of `total` drawn images has.

    The end of a 95 % interval (Clopper and Pearson, 1934).
    """
    return percent(1 - float(np.power((1 - CONFIDENCE) / 2, 1 / total)))


def interval_of_share(values: ArrayLike) -> Interval:
    """`confidence_interval` of shares in percent, within 0 to 100, where Student's t may leave this range."""
    low, high = np.clip(confidence_interval(values), *SHARES)
    return float(low), float(high)
