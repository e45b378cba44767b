"""The values that a paper prints, each in the row of a table that measures the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from robustfeatures.pipeline.report.numbers import format_number

if TYPE_CHECKING:
    from robustfeatures.experiments.experiment import Results

# The column that names the setting of a printed row where a paper has several.
SETTING = "setting"
PUBLISHED = "published"


@dataclass(frozen=True)
class PublishedValues:
    """The printed values of each quantity, one column per setting of the paper, and the printed rows without a place.

    A column has the index of the table, and no number where the paper prints none.
    """

    columns: Mapping[str, Mapping[str, pd.Series]]
    left: pd.DataFrame


def place_published(table: pd.DataFrame, names: Sequence[str], results: Results) -> PublishedValues:
    """Find for each printed row the row of the table that measures the same, if there is exactly one.

    `names` are the measured quantities of the table. The values of a setting that the study does not repeat have its
    name above them. Each row of the table has an index of its own.
    """
    assert table.index.is_unique, "two rows have one index, so a printed value would stand beside both"
    printed = results.published
    if printed is None:
        return PublishedValues({}, pd.DataFrame())
    values = [name for name in names if name in printed]
    keys = [str(column) for column in printed.columns if column not in (*values, SETTING)]
    if not set(keys) <= set(table.columns):
        return PublishedValues({}, printed)
    rows = _row_names(table, keys)
    occurrences = Counter(rows)
    places = {row: place for row, place in zip(rows, table.index, strict=True) if occurrences[row] == 1}
    columns: dict[str, dict[str, pd.Series]] = {value: {} for value in values}
    left = []
    for (number, line), row in zip(printed.iterrows(), _row_names(printed, keys), strict=True):
        if row not in places:
            left.append(number)
            continue
        setting = line.get(SETTING, results.published_setting)
        heading = PUBLISHED if results.comparable else f"{PUBLISHED} for {setting}"
        for value in values:
            empty = pd.Series(float("nan"), table.index)
            columns[value].setdefault(heading, empty)[places[row]] = line[value]
    return PublishedValues(columns, printed.loc[left])


def _row_names(table: pd.DataFrame, keys: Sequence[str]) -> list[tuple[str, ...]]:
    """What identifies each row. An eps of 0 and one of 0.0 are the same."""
    texts = [[format_number(float(cell) if isinstance(cell, int) else cell) for cell in table[key]] for key in keys]
    return list(zip(*texts, strict=True)) if texts else [()] * len(table)
