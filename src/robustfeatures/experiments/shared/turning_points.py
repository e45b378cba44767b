"""Where a curve turns, levels off or crosses another: what two-pathways-2021 reads off its figures, measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

CONFIDENCE = 0.95
RESAMPLES = 1000


def smoothed(values: pd.Series, window: int) -> pd.Series:
    """The centred moving average over `window` values, over fewer at the ends."""
    return values.rolling(window, center=True, min_periods=1).mean()


def peak(x: ArrayLike, y: ArrayLike) -> float:
    """Where y is highest; the first such place."""
    return float(np.asarray(x)[np.argmax(y)])


def levelling_off(x: ArrayLike, y: ArrayLike) -> float:
    """The place from which on y is flat: the knot k of the least-squares fit y = a + b min(x, k), of x sorted.

    Of knots that fit equally well the first; the first x for a curve that is flat throughout.
    """
    places, values = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    left = []
    for knot in places:
        columns = np.stack([np.ones_like(places), np.minimum(places, knot)], axis=1)
        fitted = columns @ np.linalg.lstsq(columns, values, rcond=None)[0]
        left.append(((values - fitted) ** 2).sum())
    best = min(left)
    # Rounding must not choose among equal fits.
    slack = 1e-9 * float(((values - values.mean()) ** 2).sum()) + 1e-18
    return float(places[int(np.argmax(np.asarray(left) <= best + slack))])


def reached(x: NDArray[np.float64], y: NDArray[np.float64], level: float) -> float:
    """The first x at which the rising broken line through (x, y) reaches a level; an end of x where it never does."""
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
    """Where a quantity that rises from below zero to above it crosses zero, and the x between which the middle half of
    its rise lies."""

    crossing: float
    begins: float
    ends: float


def transition(x: ArrayLike, y: ArrayLike) -> Transition:
    """The transition of values y at sorted x, after isotonic regression (least squares among all rising curves).

    Between the x values are joined by straight lines. A curve that never crosses zero is given an end of x for its
    crossing, and no transition shorter than all of x.
    """
    places = np.asarray(x, dtype=float)
    rising: NDArray[np.float64] = isotonic_regression(np.asarray(y, dtype=float)).x
    low, high = rising[0], rising[-1]
    if low > 0 or high < 0:
        return Transition(reached(places, rising, 0.0), float(places[0]), float(places[-1]))
    quarter, most = (reached(places, rising, low + share * (high - low)) for share in (0.25, 0.75))
    return Transition(reached(places, rising, 0.0), quarter, most)


def crossing_interval(x: ArrayLike, by_seed: ArrayLike) -> tuple[float, float]:
    """The 95 % interval of the crossing of the mean curve: bootstrap over seeds (percentiles; Efron, 1979).

    `by_seed` (seeds, values at x) holds one curve per seed. A resample that never crosses counts as an end of x. NaN
    with fewer than two seeds.
    """
    curves = np.asarray(by_seed, dtype=float)
    if len(curves) < 2:
        return float("nan"), float("nan")

    def crossing(chosen: NDArray[np.int64]) -> float:
        return transition(x, curves[chosen].mean(axis=0)).crossing

    # Imported here: it is slow, and few tables and figures need it.
    from scipy import stats

    found = stats.bootstrap(
        (np.arange(len(curves)),),
        crossing,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        vectorized=False,
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(found.low), float(found.high)
