"""Heat maps with their values in the cells: transfer matrices, cosines, phase diagrams."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from robustfeatures.experiments.shared.plots.style import (
    TITLE,
    WIDEST,
    contrasting,
    distinct,
    label_horizontal,
    leftmost,
    make_panels,
    text_width,
    wrap,
)

# Lightness rises monotonically, so the map is readable in grey too.
COLOUR_MAP = "cividis"
# Numbers in larger matrices would be too small to read.
MOST_NUMBERS = 14
MOST_TICKS = 6
# Width and height in inches of a panel without numbers, and of a cell with one; points of the numbers.
UNNUMBERED = (4.0, 3.2)
CELL = (0.42, 0.34)
NUMBERS = 7
# The look of the line between two groups of rows or columns.
DIVISION: dict[str, Any] = {"color": "white", "linewidth": 1.2}
# Inches of the colour bar, of the labels of rows and columns, and of the longest colour bar.
ASIDE, LABELS, LONGEST_BAR = 1.1, 0.7, 3.0


def heat_map(
    rows: pd.DataFrame,
    *,
    row: str,
    column: str,
    value: str,
    label: str,
    xlabel: str,
    ylabel: str,
    panel: str,
    limits: tuple[float, float],
    cell: Callable[[float], str],
    colour: str | None = None,
    divide: int | None = None,
) -> Figure:
    """Means of `value` over seeds, a cell per value of `row` and `column`, a panel per value of `panel`, one scale.

    Rows and columns without any value in a panel are left out of it. `colour` is the column that the colours show,
    if it is not `value`. A thin line follows the first `divide` rows and columns.

    `label` names the coloured quantity with its unit at the colour bar; `limits` are the ends of its scale.
    `cell` writes a number of `value`.
    """
    panels, names, columns = (distinct(rows[each]) for each in (panel, row, column))
    groups = rows.groupby([panel, row, column])
    means, colours = groups[value].mean(), groups[colour or value].mean()
    low, high = limits
    numbered = max(len(names), len(columns)) <= MOST_NUMBERS
    width, height = UNNUMBERED
    if numbered:
        across = max(LABELS, 0.2 + max(text_width(_name(each)) for each in names))
        widest = max(text_width(cell(each), NUMBERS) for each in (low, high, float(means.min())))
        # As many panels side by side as leave their numbers enough room.
        shares = [((WIDEST - ASIDE) / beside - across) / len(columns) for beside in range(len(panels), 0, -1)]
        each_cell = min(CELL[0], next((share for share in shares if share >= widest + 0.04), shares[-1]))
        width, height = max(2.4, each_cell * len(columns) + across), max(1.6, CELL[1] * len(names)) + LABELS
    figure, grid = make_panels(len(panels), width=width, height=height + 0.2, aside=ASIDE, sharey=False)
    for axes, name in zip(grid, panels, strict=True):
        matrix, shades = (
            _without_empty(each.xs(name, level=panel).unstack(column).reindex(index=names, columns=columns))
            for each in (means, colours)
        )
        drawn = axes.imshow(
            shades.to_numpy(dtype=float), cmap=COLOUR_MAP, vmin=low, vmax=high, aspect="auto", interpolation="nearest"
        )
        axes.set_title(wrap(str(name), width - LABELS, TITLE), fontsize=TITLE)
        _ticks(axes, list(matrix.index), list(matrix.columns))
        if numbered:
            write_numbers(drawn, matrix.to_numpy(dtype=float), cell)
        if divide is not None:
            axes.axhline(divide - 0.5, **DIVISION)
            axes.axvline(divide - 0.5, **DIVISION)
    label_horizontal(figure, grid, xlabel)
    for axes in leftmost(grid):
        axes.set_ylabel(ylabel)
    shrink = min(1.0, LONGEST_BAR / figure.get_figheight())
    figure.colorbar(drawn, ax=grid, label=label, fraction=0.05, pad=0.02, shrink=shrink, aspect=15)
    return figure


def _without_empty(matrix: pd.DataFrame) -> pd.DataFrame:
    return matrix.dropna(how="all").dropna(axis=1, how="all")


def _ticks(axes: Axes, names: list[Any], columns: list[Any]) -> None:
    """Name rows and columns, or every few of them where there are many."""
    for axis, found in ((axes.yaxis, names), (axes.xaxis, columns)):
        step = 1 if len(found) <= MOST_NUMBERS else len(found) // MOST_TICKS
        shown = range(0, len(found), step)
        axis.set_ticks(list(shown), [_name(found[at]) for at in shown])
    if any(isinstance(name, str) and len(name) > 5 for name in columns):
        for tick in axes.get_xticklabels():
            tick.set(rotation=30, ha="right", rotation_mode="anchor")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _name(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, (float, np.floating)) else str(value)


def write_numbers(
    drawn: AxesImage,
    values: NDArray[np.float64],
    cell: Callable[[float], str],
    *,
    points: float = NUMBERS,
    missing: str = "",
) -> None:
    """Write each value in its cell of a drawn matrix, in black or white; `missing` stands for what is not finite."""
    shades = drawn.get_array()
    assert shades is not None
    axes, colours = drawn.axes, drawn.to_rgba(np.ma.filled(shades, np.nan))
    for (at_row, at_column), value in np.ndenumerate(values):
        # Remove the sign of a value that is rounded to 0.
        text = re.sub(r"^-(?=[0.]+$)", "", cell(value)) if np.isfinite(value) else missing
        if text:
            axes.text(
                *(at_column, at_row, text),
                ha="center",
                va="center",
                fontsize=points,
                color=contrasting(colours[at_row, at_column]),
            )
