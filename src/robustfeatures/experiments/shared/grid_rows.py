"""Evaluations of models trained by the cells of a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# With this interval in epochs a probe runs only after the last epoch.
AFTER_LAST_EPOCH = 1_000_000
# D, and D relabelled by t(y) = (y + 1) mod C, by the label shift.
TEST_SETS = {0: "D", 1: "D_shift"}
COUNTS = {"correct", "total", "classes", "most_frequent"}
EVALUATED = {"row", "seed", "metric", "label_shift", "eps", "accuracy", "chance", "learned", *COUNTS}
ADDED = {"split", "test_set", "chosen"}


def varied_fields(rows: pd.DataFrame) -> list[str]:
    """The columns that hold the varied fields of a grid's cells, in order."""
    return [str(column) for column in rows.columns if column not in EVALUATED | ADDED]


def simplify_augmentation(rows: pd.DataFrame) -> pd.DataFrame:
    """Replace the augmentation by "yes" or "no", as in the papers' tables, if the grid has at most two values."""
    if "augmentation" not in rows or rows["augmentation"].nunique() > 2:
        return rows
    return rows.assign(augmentation=rows["augmentation"].ne("none").map({True: "yes", False: "no"}))


def name_test_sets(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with simple augmentation, and a column `test_set` for the label shift: "D" or "D_shift"."""
    return simplify_augmentation(rows).assign(test_set=rows["label_shift"].map(TEST_SETS))
