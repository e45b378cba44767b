"""The interval of a mean over seeds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

CONFIDENCE = 0.95


def confidence_interval(values: ArrayLike) -> tuple[float, float]:
    """The ends of the 95 % interval of the mean (Student's t); NaN for fewer than two values."""
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        return float("nan"), float("nan")
    middle = float(values.mean())
    half = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2) * values.std(ddof=1) / np.sqrt(len(values)))
    return middle - half, middle + half
