"""Tables as people read them, from the columns that `summaries` makes: as cells, as Markdown, as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from robustfeatures.errors import make_printable
from robustfeatures.pipeline.report.numbers import measured, number

if TYPE_CHECKING:
    from robustfeatures.experiments.experiment import Results

BESIDE = ("{}_std", "{}_low", "{}_high", "published_{}", "difference_{}")
# Units of percentages and of their differences.
PERCENT = ("%", "points")
# More columns than these are not read side by side.
MOST_RADII = 8
# What a cell of numbers consists of; other cells are text.
NUMERIC = re.compile(r"-?\d[\d.]*(?:e-?\d+)?(?: (?:±|to) -?\d[\d.]*(?:e-?\d+)?)*")


@dataclass(frozen=True)
class Sheet:
    """One table to be read, all cells text, and what stands above it."""

    title: str
    cells: pd.DataFrame


def quantities(table: pd.DataFrame) -> list[str]:
    """The columns that were measured: those with a spread, an interval or a published value beside them."""
    columns = [str(column) for column in table.columns]
    return [column for column in columns if any(beside.format(column) in columns for beside in BESIDE)]


def sheets(table: pd.DataFrame, results: Results, units: Mapping[str, str]) -> list[Sheet]:
    """What was measured, first with one column per eps where there are several, and what the paper prints."""
    names = quantities(table)
    found = []
    if _can_be_wide(table, names):
        cells = _cells(table, names[0], units)[_named(names[0], units)]
        said = ", ".join([_named(names[0], units), *_spread(table, names)])
        found.append(Sheet(_sentence([said]), _wide(table, names, cells)))
    found.append(Sheet(_sentence([*_spread(table, names), *_intervals(table, names)]), _in_full(table, units)))
    if results.published is not None:
        printed = results.published
        values = [name for name in names if name in printed]
        cells = printed.apply(lambda column: column.map(number))
        wide = _can_be_wide(printed, values)
        shown = _wide(printed, values, cells[values[0]]) if wide else _clean(printed, cells)
        title = f"Published ({results.published_source}; {results.published_setting}):"
        found.append(Sheet(title, shown.rename(columns={value: _named(value, units) for value in values})))
    return found


def _sentence(said: list[str]) -> str:
    text = ", ".join(said)
    return f"{text[:1].upper()}{text[1:]}:" if text else ""


def _spread(table: pd.DataFrame, names: list[str]) -> list[str]:
    """What the numbers are."""
    said = []
    if "seeds" in table:
        few, many = int(table["seeds"].min()), int(table["seeds"].max())
        if _any(table, [f"{name}_std" for name in names]):
            said.append(f"mean ± standard deviation over {many if few == many else f'{few} to {many}'} seeds")
        else:
            said.append("one seed" if many == 1 else f"{many} seeds")
    if "eps" in table and (table["eps"] == 0).any():
        said.append("clean images" if (table["eps"] == 0).all() else "eps 0 is clean")
    return said


def _intervals(table: pd.DataFrame, names: list[str]) -> list[str]:
    if not _any(table, [f"{name}_low" for name in names]):
        return []
    return ["95 % intervals of the mean (Student's t)" if "seeds" in table else "95 % intervals"]


def _any(table: pd.DataFrame, columns: list[str]) -> bool:
    return any(column in table and table[column].notna().any() for column in columns)


def _in_full(table: pd.DataFrame, units: Mapping[str, str]) -> pd.DataFrame:
    """Every column of the table; mean and spread share a cell, so do the ends of an interval."""
    names = quantities(table)
    beside = {each.format(name) for name in names for each in BESIDE}
    columns: dict[str, pd.Series] = {}
    for column in map(str, table.columns):
        if column in names:
            cells = _cells(table, column, units)
            columns |= cells if len(names) == 1 else _told_apart(cells, column, units)
        elif column == "seeds":
            if table["seeds"].nunique() > 1:
                columns["seeds"] = table["seeds"].map(number)
        elif column not in beside:
            columns[_named(column, units)] = table[column].map(number)
    return _clean(table, pd.DataFrame(columns))


def _told_apart(cells: dict[str, pd.Series], name: str, units: Mapping[str, str]) -> dict[str, pd.Series]:
    return {column if column == _named(name, units) else f"{name}: {column}": cell for column, cell in cells.items()}


def _cells(table: pd.DataFrame, name: str, units: Mapping[str, str]) -> dict[str, pd.Series]:
    """The columns that show one quantity; those without any value are left out."""
    wanted = [table[each] if each in table else pd.Series(float("nan"), table.index) for each in _beside(name)]
    texts = [
        measured([mean, low, high, published, difference], std, percent=units.get(name) in PERCENT)
        for mean, std, low, high, published, difference in zip(table[name].astype(float), *wanted, strict=True)
    ]
    means, lows, highs, published, differences, spreads = (list(column) for column in zip(*texts, strict=True))
    shown = {
        _named(name, units): [f"{mean} ± {std}" if std else mean for mean, std in zip(means, spreads, strict=True)],
        "95 % interval": [f"{low} to {high}" if low else "" for low, high in zip(lows, highs, strict=True)],
        "published": published,
        "difference": differences,
    }
    return {column: pd.Series(cells, table.index) for column, cells in shown.items() if any(cells)}


def _beside(name: str) -> list[str]:
    return [each.format(name) for each in BESIDE]


def _named(column: str, units: Mapping[str, str]) -> str:
    return f"{column} ({units[column]})" if units.get(column) else column


def _clean(table: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """The cells without an eps that is always 0; in a table with others 0 is called clean."""
    if "eps" not in cells or not (table["eps"] == 0).any():
        return cells
    if (table["eps"] == 0).all():
        return cells.drop(columns="eps")
    return cells.assign(eps=cells["eps"].where(table["eps"] != 0, "clean"))


def _can_be_wide(table: pd.DataFrame, names: list[str]) -> bool:
    """Whether one quantity stands at several values of eps, each once a row."""
    if len(names) != 1 or "eps" not in table or not 1 < table["eps"].nunique() <= MOST_RADII:
        return False
    return not table.duplicated([*_identifying(table, names), "eps"]).any()


def _identifying(table: pd.DataFrame, names: list[str]) -> list[str]:
    aside = {"eps", "seeds", *names, *(each.format(name) for name in names for each in BESIDE)}
    return [str(column) for column in table.columns if column not in aside]


def _wide(table: pd.DataFrame, names: list[str], cells: pd.Series) -> pd.DataFrame:
    """One line per row and one column per eps, in order of appearance."""
    index = _identifying(table, names)
    texts = table[index].apply(lambda column: column.map(number)).assign(eps=table["eps"], cell=cells)
    pivoted: pd.DataFrame = texts.pivot_table(
        index=index, columns="eps", values="cell", aggfunc="first", sort=False, fill_value=""
    )
    pivoted.columns = pd.Index(["clean" if eps == 0 else f"eps {eps:g}" for eps in map(float, pivoted.columns)])
    return pivoted.reset_index()


def plain(text: str) -> str:
    """Markdown that shows `text` as it is, on one line."""
    # Within a word an underscore means nothing.
    return re.sub(r"[\\`*\[\]<>&|#!~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", make_printable(text))


def as_markdown(cells: pd.DataFrame) -> str:
    """The cells as a table of Markdown."""
    shown = cells.map(lambda cell: plain(str(cell))).rename(columns=lambda name: plain(str(name)))
    return str(shown.to_markdown(index=False, disable_numparse=True))


def as_latex(cells: pd.DataFrame) -> str:
    """The cells as a tabular of LaTeX with the rules of the package booktabs; columns of numbers are flush right."""
    shown = cells.map(lambda cell: make_printable(str(cell))).rename(columns=lambda name: make_printable(str(name)))
    sides = "".join("r" if _is_numeric(shown[name]) else "l" for name in shown.columns)
    styler = shown.style.hide(axis="index").format(_in_mathematics, escape="latex")
    return str(styler.format_index(escape="latex", axis="columns").to_latex(hrules=True, column_format=sides))


def _is_numeric(cells: pd.Series) -> bool:
    return bool(all(not cell or NUMERIC.fullmatch(cell) for cell in cells) and any(cells))


def _in_mathematics(cell: object) -> str:
    """Signs and powers of ten of a cell of numbers as LaTeX sets them; other cells as they are."""
    text = str(cell)
    if not NUMERIC.fullmatch(text):
        return text
    powers = re.sub(r"e(-?\d+)", r"$\\times 10^{\1}$", text)
    return re.sub(r"(?<![\d{])-(?=\d)", "$-$", powers).replace("±", r"$\pm$")
