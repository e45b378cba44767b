"""Tables for people, from the columns that `summaries` makes: as cells, as Markdown, as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from robustfeatures.errors import make_printable
from robustfeatures.experiments.shared.units import SHARES
from robustfeatures.pipeline.report.numbers import format_column, format_number, format_quantity
from robustfeatures.pipeline.report.published_values import PublishedValues, place_published

if TYPE_CHECKING:
    from robustfeatures.experiments.experiment import Experiment, Results

BESIDE = ("{}_std", "{}_low", "{}_high", "published_{}", "difference_{}")
# The units of shares, from 0 to 100 %, and of their differences.
SHARE, DIFFERENCE = "%", "points"
# The headings of what stands beside a measured value.
INTERVAL, DIFFERENCE_HEADING = "95 % interval", "difference"
PERCENT = (SHARE, DIFFERENCE)
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


def limit_intervals(table: pd.DataFrame, units: Mapping[str, str]) -> pd.DataFrame:
    """The table with the 95 % intervals of shares within 0 to 100 %, where Student's t may leave this range."""
    least, most = SHARES
    limited = table.copy()
    for name in measured_columns(table):
        low, high = f"{name}_low", f"{name}_high"
        if units.get(name) == SHARE and {low, high} <= set(table.columns):
            # A performance correlation, which stands among shares, may be negative itself.
            limited[low] = table[low].where(table[name] < least, table[low].clip(lower=least))
            limited[high] = table[high].where(table[name] > most, table[high].clip(upper=most))
    return limited


def make_sheets(table: pd.DataFrame, results: Results, experiment: Experiment) -> list[Sheet]:
    """The measured values with the published ones beside them, first with one column per eps if there are several.

    Published values of rows that the study does not measure have a table of their own.
    """
    names, units = measured_columns(table), experiment.units
    published = place_published(table, names, results)
    source = _describe_source(published, results)
    spread = _describe_spread(table, names, results.norm)
    sheets = []
    if _can_pivot(table, names):
        (name,) = names
        cells = _cells(table, name, units, published.columns.get(name, {}))
        shown = {heading: cells[heading] for heading in cells if heading not in (INTERVAL, DIFFERENCE_HEADING)}
        phrases = [", ".join([_with_unit(name, units), *spread, *source])]
        sheets.append(Sheet(_join_phrases(phrases), _pivot_by_eps(table, names, shown)))
    phrases = [*spread, *_describe_intervals(table, names, units), *source]
    sheets.append(Sheet(_join_phrases(phrases), _full_cells(table, units, published)))
    if len(published.left):
        sheets.append(_left_sheet(published.left, names, results, units))
    return [Sheet(sheet.title, _name_columns(sheet.cells, experiment)) for sheet in sheets]


def _left_sheet(left: pd.DataFrame, names: list[str], results: Results, units: Mapping[str, str]) -> Sheet:
    """The printed rows that the study does not measure."""
    values = [name for name in names if name in left]
    cells = left.apply(lambda column: column.map(format_number))
    shown = {}
    for value in values:
        texts = format_column(list(left[value]), percent=units.get(value) in PERCENT)
        shown[_with_unit(value, units)] = pd.Series(texts, left.index)
    if _can_pivot(left, values):
        wide = _pivot_by_eps(left, values, shown)
    else:
        wide = _simplify_eps(left, cells.drop(columns=values).assign(**shown))
    title = f"Published, without a measurement beside it ({results.published_source}; {results.published_setting}):"
    return Sheet(title, wide)


def _describe_source(published: PublishedValues, results: Results) -> list[str]:
    """A phrase for the title on the published values in the table."""
    if not any(published.columns.values()):
        return []
    other = "" if results.comparable else ", of other data or networks"
    return [f"published: {results.published_source}{other}"]


def _name_columns(cells: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """The cells under headings for people: words of the experiment, and no underscores."""

    def name(heading: str) -> str:
        # What stands behind the column's own name is its unit, or what it shows of a quantity.
        own, *rest = re.split(r"(?=: | \()", heading, maxsplit=1)
        return f"{experiment.names.get(own, own.replace('_', ' '))}{''.join(rest)}"

    return cells.rename(columns=name)


def _join_phrases(phrases: list[str]) -> str:
    text = ", ".join(phrases)
    return f"{text[:1].upper()}{text[1:]}:" if text else ""


def _describe_spread(table: pd.DataFrame, names: list[str], norm: str) -> list[str]:
    """Phrases for the title: mean and spread over seeds, the norm of the radii, clean images."""
    phrases = []
    if "seeds" in table:
        few, many = int(table["seeds"].min()), int(table["seeds"].max())
        if _has_values(table, [f"{name}_std" for name in names]):
            phrases.append(f"mean ± standard deviation over {many if few == many else f'{few} to {many}'} seeds")
        else:
            phrases.append("one seed" if many == 1 else f"{many} seeds")
    if "eps" in table and norm != "eps" and (table["eps"] > 0).any():
        phrases.append(f"eps is the {norm} radius")
    if "eps" in table and (table["eps"] == 0).any():
        phrases.append("clean images" if (table["eps"] == 0).all() else "eps 0 is clean")
    return phrases


def _describe_intervals(table: pd.DataFrame, names: list[str], units: Mapping[str, str]) -> list[str]:
    if not _has_values(table, [f"{name}_low" for name in names]):
        return []
    if "seeds" not in table:
        return ["95 % intervals"]
    within = "within 0 to 100 %" if any(units.get(name) == SHARE for name in names) else ""
    return [", ".join(part for part in ("95 % intervals of the mean (Student's t)", within) if part)]


def _has_values(table: pd.DataFrame, columns: list[str]) -> bool:
    return any(column in table and table[column].notna().any() for column in columns)


def _full_cells(table: pd.DataFrame, units: Mapping[str, str], published: PublishedValues) -> pd.DataFrame:
    """Every column of the table. Mean and spread share a cell, and so do the ends of an interval."""
    names = measured_columns(table)
    beside = {each.format(name) for name in names for each in BESIDE}
    columns: dict[str, pd.Series] = {}
    for column in map(str, table.columns):
        if column in names:
            cells = _cells(table, column, units, published.columns.get(column, {}))
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


def _cells(
    table: pd.DataFrame, name: str, units: Mapping[str, str], published: Mapping[str, pd.Series]
) -> dict[str, pd.Series]:
    """The columns that show one quantity, without those that are empty."""
    std, low, high, difference = (
        table[each] if each in table else pd.Series(float("nan"), table.index)
        for each in (f"{name}_std", f"{name}_low", f"{name}_high", f"difference_{name}")
    )
    values = [table[name].astype(float), low, high, difference, *published.values()]
    rows = format_quantity(list(zip(*values, strict=True)), list(std), percent=units.get(name) in PERCENT)
    means, lows, highs, differences, *printed, spreads = (list(column) for column in zip(*rows, strict=True))
    shown = {
        _with_unit(name, units): [f"{mean} ± {std}" if std else mean for mean, std in zip(means, spreads, strict=True)],
        INTERVAL: [f"{low} to {high}" if low else "" for low, high in zip(lows, highs, strict=True)],
        **dict(zip(published, printed, strict=True)),
        DIFFERENCE_HEADING: differences,
    }
    return {column: pd.Series(cells, table.index) for column, cells in shown.items() if any(cells)}


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


def _pivot_by_eps(table: pd.DataFrame, names: list[str], cells: Mapping[str, pd.Series]) -> pd.DataFrame:
    """A table with one line per row, in order of appearance, and one column per eps, in order of size.

    `cells` are the columns to spread, the measured one first. The others follow it where they have a value.
    """
    index = _identifying_columns(table, names)
    texts = table[index].apply(lambda column: column.map(format_number)).assign(eps=table["eps"])
    columns: dict[str, pd.Series] = {}
    for eps in sorted(map(float, table["eps"].unique())):
        at = texts["eps"] == eps
        for number, (heading, column) in enumerate(cells.items()):
            radius = "clean" if eps == 0 else f"eps {eps:g}"
            found = column[at].set_axis(pd.MultiIndex.from_frame(texts.loc[at, index]))
            if number == 0 or found.any():
                columns[radius if number == 0 else f"{radius}, {heading}"] = found
    rows = pd.MultiIndex.from_frame(texts[index].drop_duplicates())
    return pd.DataFrame(columns).reindex(rows).fillna("").reset_index()


def escape_markdown(text: str) -> str:
    """Escape `text`, so that Markdown shows it as it is, on one line."""
    # Within a word an underscore has no meaning in Markdown.
    return re.sub(r"[\\`*\[\]<>&|#!~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", make_printable(text))


def as_markdown(cells: pd.DataFrame) -> str:
    """The cells as a Markdown table."""
    shown = cells.map(lambda cell: escape_markdown(str(cell))).rename(columns=lambda name: escape_markdown(str(name)))
    sides = ["right" if is_numeric(cells[name]) else "left" for name in cells.columns]
    return str(shown.to_markdown(index=False, disable_numparse=True, colalign=sides))


def as_latex(cells: pd.DataFrame) -> str:
    """The cells as a LaTeX tabular with rules of the package booktabs. Columns of numbers are aligned right."""
    shown = cells.map(lambda cell: make_printable(str(cell))).rename(columns=lambda name: make_printable(str(name)))
    sides = "".join("r" if is_numeric(shown[name]) else "l" for name in shown.columns)
    styler = shown.style.hide(axis="index").format(_typeset_numbers, escape="latex")
    return str(styler.format_index(escape="latex", axis="columns").to_latex(hrules=True, column_format=sides))


def is_numeric(cells: pd.Series) -> bool:
    """Whether a column holds numbers alone, with their spreads and intervals; some cells may be empty."""
    return bool(all(not cell or NUMERIC.fullmatch(cell) for cell in cells) and any(cells))


def _typeset_numbers(cell: object) -> str:
    """The cell with its signs and powers of ten in LaTeX's notation, if it holds numbers."""
    text = str(cell)
    if not NUMERIC.fullmatch(text):
        return text
    powers = re.sub(r"e(-?\d+)", r"$\\times 10^{\1}$", text)
    return re.sub(r"(?<![\d{])-(?=\d)", "$-$", powers).replace("±", r"$\pm$")
