"""A heat map of a grid beside the curves along one of its fields, with their crossing."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from robustfeatures.experiments.shared.plots.lines import draw_mean
from robustfeatures.experiments.shared.plots.matrices import COLOUR_MAP, write_numbers
from robustfeatures.experiments.shared.plots.style import (
    WIDEST,
    distinct,
    legend_above,
    text_width,
    ticks_at,
    value_axis,
    wrap,
)

YLABEL = "accuracy (%)"
# Inches of the curves, of their vertical axis with its label, of the colour bar, and of the longest name of a row.
CURVES, AXIS, ASIDE, LONGEST_NAME = 3.6, 1.2, 1.1, 1.8


def heat_map_with_transition(
    cells: pd.DataFrame, line: pd.DataFrame, *, column: str, crossing: float, low: float, high: float
) -> Figure:
    """`cells` has the columns name, `column`, gap (a line per seed); `line` has `column`, D and D_shift, in percent.

    `crossing` is drawn if it is finite, and so is the interval from `low` to `high`.
    """
    names, values = distinct(cells["name"]), sorted(cells[column].unique())
    shown = [wrap(name, LONGEST_NAME) for name in names]
    width = max(2.4, 0.45 * len(values)) + 0.3 + max(text_width(name) for name in shown)
    height = max(3.0, 0.18 * sum(name.count("\n") + 2 for name in shown) + 1.2)
    whole = width + ASIDE + CURVES
    figure = Figure(figsize=(min(whole, WIDEST), height), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[width + ASIDE, CURVES])
    _heat_map(left, cells, names, values, column)
    left.set_yticks(range(len(names)), shown)
    handles: list[object] = [
        draw_mean(right, line, x=column, value=name, ylabel=YLABEL, number=number, label=f"accuracy on {name}")
        for number, name in enumerate(("D", "D_shift"))
    ]
    if math.isfinite(crossing):
        handles.append(right.axvline(crossing, color="0.4", lw=0.8, label=f"crossing, at {crossing:.2g}"))
    if math.isfinite(low):
        handles.append(right.axvspan(low, high, color="0.4", alpha=0.15, lw=0, label="its 95 % interval"))
    value_axis(right, YLABEL)
    right.set_xlabel(column.replace("_", " "))
    ticks_at(right, line[column].unique(), figure.get_figwidth() / whole * CURVES - AXIS)
    legend_above(figure, handles)
    return figure


def _heat_map(axes: Axes, cells: pd.DataFrame, names: list[str], values: list[float], column: str) -> None:
    """The mean gaps on a scale whose middle is 0 and whose ends are the largest gap, in fives."""
    means = cells.groupby(["name", column])["gap"].mean().unstack(column)
    gaps = means.reindex(index=names, columns=values).to_numpy(dtype=float)
    end = max(5.0, 5 * math.ceil(float(np.nanmax(np.abs(gaps))) / 5))
    drawn = axes.imshow(gaps, cmap=COLOUR_MAP, vmin=-end, vmax=end, aspect="auto", interpolation="nearest")
    write_numbers(drawn, gaps, "{:.0f}".format)
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values], rotation=45)
    axes.set_xlabel(column.replace("_", " "))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.figure.colorbar(drawn, ax=axes, label="D minus D_shift (points)")
