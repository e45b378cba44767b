"""The points where curves peak, level off or cross zero; two-pathways-2021 reads them off its figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from robustfeatures.experiments.shared.intervals import CONFIDENCE

RESAMPLES = 1000


def smooth(values: pd.Series, window: int) -> pd.Series:
    """The centred moving average over `window` values, over fewer at the ends."""
    return values.rolling(window, center=True, min_periods=1).mean()


def find_peak(x: ArrayLike, y: ArrayLike) -> float:
    """The first x at which y is highest."""
    return float(np.asarray(x)[np.argmax(y)])


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
    all of x.
    """
    places = np.asarray(x, dtype=float)
    rising: NDArray[np.float64] = isotonic_regression(np.asarray(y, dtype=float)).x
    low, high = rising[0], rising[-1]
    if low > 0 or high < 0:
        return Transition(False, first_place_at(places, rising, 0.0), float(places[0]), float(places[-1]))
    quarter, most = (first_place_at(places, rising, low + share * (high - low)) for share in (0.25, 0.75))
    return Transition(True, first_place_at(places, rising, 0.0), quarter, most)


def bootstrap_crossing(x: ArrayLike, curves_by_seed: ArrayLike) -> tuple[float, float]:
    """The 95 % interval of the crossing of the mean curve: bootstrap over seeds (percentiles; Efron, 1979).

    `curves_by_seed` (seeds, values at x) holds one curve per seed. A resample that never crosses counts as
    an end of x. NaN with fewer than two seeds.
    """
    curves = np.asarray(curves_by_seed, dtype=float)
    if len(curves) < 2:
        return float("nan"), float("nan")

    def crossing(chosen: NDArray[np.int64]) -> float:
        return fit_transition(x, curves[chosen].mean(axis=0)).crossing

    # A slow import that few tables and figures need.
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
