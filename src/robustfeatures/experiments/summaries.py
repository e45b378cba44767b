"""Tables from rows: means and standard deviations over seeds, published values beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from robustfeatures.experiments.experiment import Results


def over_seeds(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """One line per `by`, in order of appearance: accuracy (mean, percent), accuracy_std (n - 1), seeds."""
    grouped = rows.groupby(list(by), sort=False)["accuracy"]
    table = grouped.agg(accuracy="mean", accuracy_std="std", seeds="count").reset_index()
    return table.round({"accuracy": 2, "accuracy_std": 2})


def with_published(table: pd.DataFrame, results: Results, on: Sequence[str]) -> pd.DataFrame:
    """The table with a column `published`, filled only where the study repeats the paper's setting."""
    if results.comparable and results.published is not None:
        published = results.published.rename(columns={"accuracy": "published"})
        return table.merge(published[[*on, "published"]], on=list(on), how="left")
    return table.assign(published=float("nan"))


def by_seed(rows: pd.DataFrame, **where: object) -> pd.Series:
    """Accuracy (percent) of the rows that match all of `where`, indexed by seed."""
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return rows.set_index("seed")["accuracy"]
