"""Rows of models trained by the cells of a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# A probe with this many epochs between two takings is taken after the last epoch alone.
AT_THE_END = 1_000_000
HISTORY = {"row", "seed", "epoch", "probe", "network", "value", "accuracy", "loss", "images"}
ADDED = {"eps", "chosen", "test_set"}


def varied(rows: pd.DataFrame) -> list[str]:
    """The columns that hold the varied fields of a grid's cells, in order."""
    return [str(column) for column in rows.columns if column not in HISTORY | ADDED]


def with_augmentation(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with "yes" or "no" for the augmentation where the grid has one and none, as the papers' tables say."""
    if "augmentation" not in rows or rows["augmentation"].nunique() > 2:
        return rows
    return rows.assign(augmentation=rows["augmentation"].ne("none").map({True: "yes", False: "no"}))
