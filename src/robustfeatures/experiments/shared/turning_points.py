"""The points where curves fall, level off or cross zero; two-pathways-2021 reads them off its figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression


def smooth(values: pd.Series, window: int) -> pd.Series:
    """The centred moving average over `window` values, over fewer at the ends."""
    return values.rolling(window, center=True, min_periods=1).mean()


def find_steepest_fall(x: ArrayLike, y: ArrayLike) -> float:
    """The x at which y falls fastest, by central differences; the middle of equally steep ones; NaN without a fall."""
    if len(np.asarray(x)) < 2:
        return float("nan")
    places, values = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    slopes = np.gradient(values, places)
    steepest = float(slopes.min())
    if steepest >= 0:
        return float("nan")
    # Rounding errors must not decide between equal slopes.
    return float(places[slopes <= (1 - 1e-9) * steepest].mean())


def find_plateau(x: ArrayLike, y: ArrayLike) -> float:
    """The x from which y is flat: the knot k of the least-squares fit y = a + b min(x, k), for sorted x.

    Among equally good knots it is the first; for a flat curve it is the first x.
    """
    places, values = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    left = []
    for knot in places:
        columns = np.stack([np.ones_like(places), np.minimum(places, knot)], axis=1)
        fitted = columns @ np.linalg.lstsq(columns, values, rcond=None)[0]
        left.append(((values - fitted) ** 2).sum())
    best = min(left)
    # Rounding errors must not decide between equal fits.
    slack = 1e-9 * float(((values - values.mean()) ** 2).sum()) + 1e-18
    return float(places[int(np.argmax(np.asarray(left) <= best + slack))])


def first_place_at(x: NDArray[np.float64], y: NDArray[np.float64], level: float) -> float:
    """The first x at which the rising piecewise linear curve (x, y) reaches `level`; an end of x if it never does."""
    above = np.flatnonzero(y >= level)
    if len(above) == 0:
        return float(x[-1])
    at = int(above[0])
    if at == 0:
        return float(x[0])
    share = (level - y[at - 1]) / (y[at] - y[at - 1])
    return float(x[at - 1] + share * (x[at] - x[at - 1]))


@dataclass(frozen=True)
class Transition:
    """The x at which a rising quantity crosses zero, and the ends of the middle half of its rise.

    `crosses` tells whether it does.
    """

    crosses: bool
    crossing: float
    begins: float
    ends: float


def fit_transition(x: ArrayLike, y: ArrayLike) -> Transition:
    """The transition of values y at sorted x, after isotonic regression (least squares among all rising curves).

    The curve is linear between the x. If it never crosses zero, the crossing is an end of x, and the transition spans
    all of x. Without values it does not cross zero, and has no places.
    """
    places = np.asarray(x, dtype=float)
    if not len(places):
        return Transition(False, *[float("nan")] * 3)
    rising: NDArray[np.float64] = isotonic_regression(np.asarray(y, dtype=float)).x
    low, high = rising[0], rising[-1]
    if low > 0 or high < 0:
        return Transition(False, first_place_at(places, rising, 0.0), float(places[0]), float(places[-1]))
    quarter, most = (first_place_at(places, rising, low + share * (high - low)) for share in (0.25, 0.75))
    return Transition(True, first_place_at(places, rising, 0.0), quarter, most)
