"""How much of what a network learned from D_det comes from robust features, and how much from non-robust ones.

two-pathways-2021, Section 4. Robust features are right on D_shift = {(x, t(y))}, non-robust ones on D. A network that
has only features of one kind gives each class without such a feature equally often. So with C classes it is right on
the other set too, in (100 - accuracy) / (C - 1) percent, which is taken away here. With two classes nothing is left,
and no function has a value. All accuracies are in percent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# What `margin_over_nine_tenths` measures.
NEARLY_ALL = (
    "accuracy on D_shift minus nine times accuracy on D, each without what a network with only the other kind of "
    "features has there (%; no value with two classes)"
)
# What `margin_of_combination` measures.
COMBINATION = (
    "accuracies on D_shift and on D, each without what a network with only the other kind of features has there: the "
    "smaller minus a tenth of the sum (%; no value with two classes)"
)


def _split(robust: pd.Series, nonrobust: pd.Series, classes: int) -> tuple[pd.Series, pd.Series]:
    """What robust and what non-robust features give, from the accuracies on D_shift and on D."""
    others = classes - 1 if classes > 2 else float("nan")
    return robust - (100 - nonrobust) / others, nonrobust - (100 - robust) / others


def margin_over_nine_tenths(robust: pd.Series, nonrobust: pd.Series, classes: int) -> pd.Series:
    """Positive where robust features give more than nine tenths of the performance, which is taken as "nearly all"."""
    by_robust, by_nonrobust = _split(robust, nonrobust, classes)
    # Less than nothing on D is no more of the robust features.
    return by_robust - 9 * by_nonrobust.clip(lower=0)


def margin_of_combination(robust: pd.Series, nonrobust: pd.Series, classes: int) -> pd.Series:
    """Positive where either kind of features gives more than a tenth of the performance."""
    by_robust, by_nonrobust = (share.clip(lower=0) for share in _split(robust, nonrobust, classes))
    smaller = by_robust.where(by_robust < by_nonrobust, by_nonrobust)
    return smaller - 0.1 * (by_robust + by_nonrobust)
