"""Names of derived sets and of the source that an attack made them with, a standard or a robust network."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# The rows of sets made with an adversarially trained source end so.
ROBUST = "-robust"
ITSELF = "D itself"


def name_source(row: str) -> str:
    """The row of a set made by an attack as figures call it: "D_det, robust source"."""
    return f"{row.removesuffix(ROBUST)}, {'robust' if row.endswith(ROBUST) else 'standard'} source"


def split_sources(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the columns `set` and `source`, those of their `row`; of D the source is D itself."""
    names = rows["row"].map(lambda row: (row, ITSELF) if row == "D" else tuple(name_source(row).split(", ")))
    return rows.assign(set=names.str[0], source=names.str[1])
