"""Tables from rows: means, standard deviations and 95 % intervals over seeds, and published values.

Every experiment imports this module, so its functions import numpy and pandas themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from robustfeatures.experiments.experiment import Results

ACCURACY = ("accuracy",)
# With fewer clusters of networks a correlation says where the clusters lie, not how two quantities go together.
FEWEST_CLUSTERS = 5
# Values closer than this share of their range belong to one cluster.
ONE_CLUSTER = 0.1
# A network has learned something if its accuracy is at least this share of the way from chance to 100 %.
LEARNED = 0.1
# What `above_learned` subtracts.
LEAST_LEARNED = "an accuracy a tenth of the way from chance to 100 %"
# Columns of printed rows that need not be among those of a table.
UNMATCHED = ("eps", "setting")


def summarise_seeds(rows: pd.DataFrame, by: Sequence[str], *, values: Sequence[str] = ACCURACY) -> pd.DataFrame:
    """One line per `by`, in order of appearance, with the number of `seeds`.

    Each quantity x of `values` has the columns x (mean), x_std (standard deviation with n - 1), x_low and x_high (ends
    of the 95 % interval of the mean; tables keep those of shares within 0 to 100 %).

    Accuracies (percent) are rounded to two decimals, other quantities to six significant digits.
    """
    import pandas as pd

    from robustfeatures.experiments.shared.intervals import confidence_interval

    grouped = rows.groupby(list(by), sort=False)
    columns: dict[str, Any] = {}
    for value in values:
        found = grouped[value]
        columns[value] = _round(found.mean(), value)
        columns[f"{value}_std"] = _round(found.std(), value)
        columns[f"{value}_low"] = _round(found.agg(lambda seeds: confidence_interval(seeds.dropna())[0]), value)
        columns[f"{value}_high"] = _round(found.agg(lambda seeds: confidence_interval(seeds.dropna())[1]), value)
    columns["seeds"] = grouped[values[0]].count()
    return pd.DataFrame(columns).reset_index()


def add_published(
    table: pd.DataFrame, results: Results, on: Sequence[str], *, values: Sequence[str] = ACCURACY
) -> pd.DataFrame:
    """Add to the table the columns `published_x` and `difference_x` (measured minus published) per quantity x of
    `values`.

    They are filled only where the study repeats the paper's setting and the paper prints the number. If the table does
    not have the printed columns, such as those of another grid, nothing is filled.
    """
    import pandas as pd

    printed = results.comparable_rows
    if printed is None or not {*on} <= {*printed} or not {*printed} <= {*on, *values, *UNMATCHED}:
        # The rows of two tables may share an index. A merge gives a new one too.
        beside = table.reset_index(drop=True).assign(**{f"published_{value}": float("nan") for value in values})
    else:
        known = [value for value in values if value in printed]
        renamed = printed[[*on, *known]].rename(columns={value: f"published_{value}" for value in known})
        beside = table.merge(renamed, on=list(on), how="left", validate="one_to_one")
    for value in values:
        column = f"published_{value}"
        published = beside[column] if column in beside else pd.Series(float("nan"), beside.index)
        beside[column] = published
        beside[f"difference_{value}"] = _round(beside[value] - published, value)
    return beside


def select_by_seed(rows: pd.DataFrame, *, value: str = "accuracy", **where: object) -> pd.Series:
    """`value` (accuracy in percent) of the rows that match all of `where`, indexed by seed."""
    import numpy as np
    import pandas as pd

    chosen = np.ones(len(rows), dtype=bool)
    for column, wanted in where.items():
        chosen &= np.asarray(rows[column].to_numpy() == wanted)
    # A claim that is resampled selects thousands of times; pandas' own selection takes ten times as long.
    seeds = pd.Index(rows["seed"].to_numpy()[chosen], name="seed")
    return pd.Series(rows[value].to_numpy()[chosen], index=seeds, name=value)


def above_chance(rows: pd.DataFrame, **where: object) -> pd.Series:
    """Accuracy minus chance (percentage points) of the evaluations that match all of `where`, indexed by seed."""
    return select_by_seed(rows, value="accuracy", **where) - select_by_seed(rows, value="chance", **where)


def above_learned(accuracy: pd.Series, chance: pd.Series | float) -> pd.Series:
    """Accuracy minus that from which on a network has learned something (percentage points; see `LEARNED`)."""
    return accuracy - chance - LEARNED * (100 - chance)


def has_learned(accuracy: pd.Series, chance: pd.Series | float) -> pd.Series:
    """Whether a network with this accuracy on unchanged images (percent) has learned something (see `LEARNED`)."""
    return above_learned(accuracy, chance) >= 0


def keep_learned(values: pd.Series, rows: pd.DataFrame, **where: object) -> pd.Series:
    """`values` by seed, without a value (NaN) in seeds where a network has learned nothing.

    The networks are those of the evaluations on unchanged images that match all of `where`. A training that fails often
    ends at a network that gives every image one class. No attack changes that, and it has no features.
    """
    learned = select_by_seed(rows, value="learned", **where)
    return values.mask(values.index.isin(learned.index[~learned.astype(bool)]))


def keep_if_any_learned(values: pd.Series, rows: pd.DataFrame) -> pd.Series:
    """`values` by seed, without a value in seeds where a network has learned none of the test sets of `rows`.

    A network that is trained on D_det may learn D or D relabelled, one that is trained on D_R may learn D_R alone.
    """
    learned = rows.groupby("seed")["learned"].any()
    return values.mask(values.index.isin(learned.index[~learned]))


@dataclass(frozen=True)
class Correlation:
    """Pearson's r, the ends of its 95 % interval (Fisher's z), the two-sided p value, and the number of points."""

    value: float
    low: float
    high: float
    p: float
    points: int


def correlation(x: Sequence[float], y: Sequence[float]) -> Correlation:
    """Pearson's correlation of two lists of equal length, two or more; with fewer than four the interval is -1 to 1.

    If one list is constant, r is NaN and the interval is -1 to 1.
    """
    # scipy.stats is a slow import that few tables and figures need.
    import numpy as np
    from scipy import stats

    from robustfeatures.experiments.shared.intervals import CONFIDENCE

    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return Correlation(float("nan"), -1.0, 1.0, float("nan"), len(x))
    found = stats.pearsonr(x, y)
    ends = found.confidence_interval(CONFIDENCE) if len(x) > 3 else (-1.0, 1.0)
    return Correlation(float(found.statistic), float(ends[0]), float(ends[1]), float(found.pvalue), len(x))


def average_architectures(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds of `accuracy` and `transfer_rate`, by `target`; without targets that have no rate."""
    return rows.groupby("target")[["accuracy", "transfer_rate"]].mean().dropna()


def count_clusters(values: ArrayLike) -> int:
    """How many groups the values form, which more than a tenth of their range separates from one another."""
    import numpy as np

    gaps = np.diff(np.sort(np.asarray(values, dtype=float)))
    return int((gaps > ONE_CLUSTER * gaps.sum()).sum()) + 1


def _round(values: pd.Series, name: str) -> pd.Series:
    if name in ACCURACY:
        return values.round(2)
    return values.map(lambda value: float(f"{value:.6g}"))
