"""Heat maps with their values in the cells: transfer matrices, cosines, phase diagrams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from robustfeatures.experiments.plots.style import in_order

# From dark to light throughout, so that it is read in grey too.
COLOUR_MAP = "cividis"
# In larger matrices numbers would not be read.
MOST_NUMBERS = 14


def heat_map(
    rows: pd.DataFrame,
    *,
    row: str,
    column: str,
    value: str,
    label: str,
    xlabel: str,
    ylabel: str,
    panel: str | None = None,
    limits: tuple[float, float] | None = None,
    cell: Callable[[float], str] = "{:.1f}".format,
) -> Figure:
    """Means of `value` over seeds, a cell per value of `row` and `column`, a panel per value of `panel`, one scale.

    `label` names the quantity with its unit at the colour bar; `limits` are the ends of the scale: (-1, 1) for cosines.
    """
    panels = in_order(rows[panel]) if panel else [None]
    names, columns = in_order(rows[row]), in_order(rows[column])
    means = rows.groupby([*([panel] if panel else []), row, column])[value].mean()
    low, high = limits or (float(means.min()), float(means.max()))
    side = max(2.4, 0.42 * len(columns))
    height = max(2.0, (0.34 if len(names) <= MOST_NUMBERS else 0.2) * len(names)) + 0.9
    figure = Figure(figsize=(side * len(panels) + 1.8, min(height, 9.0)), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    for axes, name in zip(grid[0], panels, strict=True):
        part = means if panel is None else means.xs(name, level=panel)
        values = part.unstack(column).reindex(index=names, columns=columns).to_numpy(dtype=float)
        drawn = axes.imshow(values, cmap=COLOUR_MAP, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
        axes.set_xlabel(xlabel)
        axes.set_title("" if panel is None else str(name), fontsize=10)
        _ticks(axes, names, columns)
        if max(values.shape) <= MOST_NUMBERS:
            _numbers(axes, values, low, high, cell)
    grid[0][0].set_ylabel(ylabel)
    figure.colorbar(drawn, ax=list(grid[0]), label=label, fraction=0.05, pad=0.02)
    return figure


def _ticks(axes: Axes, names: list[Any], columns: list[Any]) -> None:
    """Name rows and columns, or every few of them where there are many."""
    for axis, found in ((axes.yaxis, names), (axes.xaxis, columns)):
        step = max(1, len(found) // MOST_NUMBERS)
        shown = range(0, len(found), step)
        axis.set_ticks(list(shown), [f"{found[at]:g}" if _is_number(found[at]) else str(found[at]) for at in shown])
    if max((len(str(name)) for name in columns), default=0) > 5:
        axes.tick_params(axis="x", rotation=30)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _is_number(value: Any) -> bool:
    return isinstance(value, (float, np.floating))


def _numbers(axes: Axes, values: NDArray[np.float64], low: float, high: float, cell: Callable[[float], str]) -> None:
    """Each value in its cell, white on dark and black on light."""
    middle = (low + high) / 2
    for (at_row, at_column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "black" if value > middle else "white"
            axes.text(at_column, at_row, cell(value), ha="center", va="center", fontsize=7, color=colour)
