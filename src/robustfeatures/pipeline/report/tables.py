"""Tables for people, from the columns that `summaries` makes: as cells, as Markdown, as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from robustfeatures.errors import make_printable
from robustfeatures.pipeline.report.numbers import format_number, format_quantity

if TYPE_CHECKING:
    from robustfeatures.experiments.experiment import Results

BESIDE = ("{}_std", "{}_low", "{}_high", "published_{}", "difference_{}")
# Units of percentages and of their differences.
PERCENT = ("%", "points")
# With more radii than this, a table has one row per radius, not one column.
MOST_RADII = 8
# A cell of numbers matches this; other cells are text.
NUMERIC = re.compile(r"-?\d[\d.]*(?:e-?\d+)?(?: (?:±|to) -?\d[\d.]*(?:e-?\d+)?)*")


@dataclass(frozen=True)
class Sheet:
    """One table with text cells, and the title above it."""

    title: str
    cells: pd.DataFrame


def measured_columns(table: pd.DataFrame) -> list[str]:
    """The columns of measured values: those that have a spread, an interval or a published value beside them."""
    columns = [str(column) for column in table.columns]
    return [column for column in columns if any(beside.format(column) in columns for beside in BESIDE)]


def make_sheets(table: pd.DataFrame, results: Results, units: Mapping[str, str]) -> list[Sheet]:
    """The measured values, first with one column per eps if there are several, and the published values."""
    names = measured_columns(table)
    found = []
    if _can_pivot(table, names):
        cells = _cells(table, names[0], units)[_with_unit(names[0], units)]
        phrases = ", ".join([_with_unit(names[0], units), *_describe_spread(table, names)])
        found.append(Sheet(_join_phrases([phrases]), _pivot_by_eps(table, names, cells)))
    found.append(
        Sheet(
            _join_phrases([*_describe_spread(table, names), *_describe_intervals(table, names)]),
            _full_cells(table, units),
        )
    )
    if results.published is not None:
        printed = results.published
        values = [name for name in names if name in printed]
        cells = printed.apply(lambda column: column.map(format_number))
        wide = _can_pivot(printed, values)
        shown = _pivot_by_eps(printed, values, cells[values[0]]) if wide else _simplify_eps(printed, cells)
        title = f"Published ({results.published_source}; {results.published_setting}):"
        found.append(Sheet(title, shown.rename(columns={value: _with_unit(value, units) for value in values})))
    return found


def _join_phrases(phrases: list[str]) -> str:
    text = ", ".join(phrases)
    return f"{text[:1].upper()}{text[1:]}:" if text else ""


def _describe_spread(table: pd.DataFrame, names: list[str]) -> list[str]:
    """Phrases for the title: mean and spread over seeds, clean images."""
    phrases = []
    if "seeds" in table:
        few, many = int(table["seeds"].min()), int(table["seeds"].max())
        if _has_values(table, [f"{name}_std" for name in names]):
            phrases.append(f"mean ± standard deviation over {many if few == many else f'{few} to {many}'} seeds")
        else:
            phrases.append("one seed" if many == 1 else f"{many} seeds")
    if "eps" in table and (table["eps"] == 0).any():
        phrases.append("clean images" if (table["eps"] == 0).all() else "eps 0 is clean")
    return phrases


def _describe_intervals(table: pd.DataFrame, names: list[str]) -> list[str]:
    if not _has_values(table, [f"{name}_low" for name in names]):
        return []
    return ["95 % intervals of the mean (Student's t)" if "seeds" in table else "95 % intervals"]


def _has_values(table: pd.DataFrame, columns: list[str]) -> bool:
    return any(column in table and table[column].notna().any() for column in columns)


def _full_cells(table: pd.DataFrame, units: Mapping[str, str]) -> pd.DataFrame:
    """Every column of the table. Mean and spread share a cell, and so do the ends of an interval."""
    names = measured_columns(table)
    beside = {each.format(name) for name in names for each in BESIDE}
    columns: dict[str, pd.Series] = {}
    for column in map(str, table.columns):
        if column in names:
            cells = _cells(table, column, units)
            columns |= cells if len(names) == 1 else _prefix_columns(cells, column, units)
        elif column == "seeds":
            if table["seeds"].nunique() > 1:
                columns["seeds"] = table["seeds"].map(format_number)
        elif column not in beside:
            columns[_with_unit(column, units)] = table[column].map(format_number)
    return _simplify_eps(table, pd.DataFrame(columns))


def _prefix_columns(cells: dict[str, pd.Series], name: str, units: Mapping[str, str]) -> dict[str, pd.Series]:
    return {
        column if column == _with_unit(name, units) else f"{name}: {column}": cell for column, cell in cells.items()
    }


def _cells(table: pd.DataFrame, name: str, units: Mapping[str, str]) -> dict[str, pd.Series]:
    """The columns that show one quantity, without those that are empty."""
    wanted = [table[each] if each in table else pd.Series(float("nan"), table.index) for each in _beside(name)]
    texts = [
        format_quantity([mean, low, high, published, difference], std, percent=units.get(name) in PERCENT)
        for mean, std, low, high, published, difference in zip(table[name].astype(float), *wanted, strict=True)
    ]
    means, lows, highs, published, differences, spreads = (list(column) for column in zip(*texts, strict=True))
    shown = {
        _with_unit(name, units): [f"{mean} ± {std}" if std else mean for mean, std in zip(means, spreads, strict=True)],
        "95 % interval": [f"{low} to {high}" if low else "" for low, high in zip(lows, highs, strict=True)],
        "published": published,
        "difference": differences,
    }
    return {column: pd.Series(cells, table.index) for column, cells in shown.items() if any(cells)}


def _beside(name: str) -> list[str]:
    return [each.format(name) for each in BESIDE]


def _with_unit(column: str, units: Mapping[str, str]) -> str:
    return f"{column} ({units[column]})" if units.get(column) else column


def _simplify_eps(table: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """The cells without the column eps if it is always 0; otherwise an eps of 0 reads "clean"."""
    if "eps" not in cells or not (table["eps"] == 0).any():
        return cells
    if (table["eps"] == 0).all():
        return cells.drop(columns="eps")
    return cells.assign(eps=cells["eps"].where(table["eps"] != 0, "clean"))


def _can_pivot(table: pd.DataFrame, names: list[str]) -> bool:
    """Whether the table has one quantity at several values of eps, and each row has every eps at most once."""
    if len(names) != 1 or "eps" not in table or not 1 < table["eps"].nunique() <= MOST_RADII:
        return False
    return not table.duplicated([*_identifying_columns(table, names), "eps"]).any()


def _identifying_columns(table: pd.DataFrame, names: list[str]) -> list[str]:
    aside = {"eps", "seeds", *names, *(each.format(name) for name in names for each in BESIDE)}
    return [str(column) for column in table.columns if column not in aside]


def _pivot_by_eps(table: pd.DataFrame, names: list[str], cells: pd.Series) -> pd.DataFrame:
    """A table with one line per row and one column per eps, in order of appearance."""
    index = _identifying_columns(table, names)
    texts = table[index].apply(lambda column: column.map(format_number)).assign(eps=table["eps"], cell=cells)
    pivoted: pd.DataFrame = texts.pivot_table(
        index=index, columns="eps", values="cell", aggfunc="first", sort=False, fill_value=""
    )
    pivoted.columns = pd.Index(["clean" if eps == 0 else f"eps {eps:g}" for eps in map(float, pivoted.columns)])
    return pivoted.reset_index()


def escape_markdown(text: str) -> str:
    """Escape `text`, so that Markdown shows it as it is, on one line."""
    # Within a word an underscore has no meaning in Markdown.
    return re.sub(r"[\\`*\[\]<>&|#!~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", make_printable(text))


def as_markdown(cells: pd.DataFrame) -> str:
    """The cells as a Markdown table."""
    shown = cells.map(lambda cell: escape_markdown(str(cell))).rename(columns=lambda name: escape_markdown(str(name)))
    return str(shown.to_markdown(index=False, disable_numparse=True))


def as_latex(cells: pd.DataFrame) -> str:
    """The cells as a LaTeX tabular with rules of the package booktabs. Columns of numbers are aligned right."""
    shown = cells.map(lambda cell: make_printable(str(cell))).rename(columns=lambda name: make_printable(str(name)))
    sides = "".join("r" if _is_numeric(shown[name]) else "l" for name in shown.columns)
    styler = shown.style.hide(axis="index").format(_typeset_numbers, escape="latex")
    return str(styler.format_index(escape="latex", axis="columns").to_latex(hrules=True, column_format=sides))


def _is_numeric(cells: pd.Series) -> bool:
    return bool(all(not cell or NUMERIC.fullmatch(cell) for cell in cells) and any(cells))


def _typeset_numbers(cell: object) -> str:
    """The cell with its signs and powers of ten in LaTeX's notation, if it holds numbers."""
    text = str(cell)
    if not NUMERIC.fullmatch(text):
        return text
    powers = re.sub(r"e(-?\d+)", r"$\\times 10^{\1}$", text)
    return re.sub(r"(?<![\d{])-(?=\d)", "$-$", powers).replace("±", r"$\pm$")
