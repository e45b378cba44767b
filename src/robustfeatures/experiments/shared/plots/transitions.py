"""A heat map of a grid beside the curves along one of its fields, with their crossing."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from robustfeatures.experiments.shared.plots.matrices import COLOUR_MAP
from robustfeatures.experiments.shared.plots.style import COLOURS, MARKERS, STYLES, distinct, value_axis

MOST_TICKS = 3


def heat_map_with_transition(
    cells: pd.DataFrame, line: pd.DataFrame, *, column: str, crossing: float, low: float, high: float
) -> Figure:
    """`cells` has the columns name, `column`, gap (a line per seed); `line` has `column`, D and D_shift, in percent."""
    names, values = distinct(cells["name"]), sorted(cells[column].unique())
    width = max(3.0, 0.62 * len(values))
    figure = Figure(figsize=(width + 5.2, max(3.0, 0.5 * len(names) + 1.2)), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[width, 3.2])
    _heat_map(left, cells, names, values, column)
    for number, name in enumerate(("D", "D_shift")):
        part = line.groupby(column)[name].agg(["mean", "std"])
        places, deviation = part.index.to_numpy(), part["std"].fillna(0.0)
        style = {"color": COLOURS[number], "linestyle": STYLES[number], "marker": MARKERS[number], "markersize": 3.5}
        right.plot(places, part["mean"], label=f"on {name}", **style)
        right.fill_between(
            places, part["mean"] - deviation, part["mean"] + deviation, color=COLOURS[number], alpha=0.2, lw=0
        )
    right.axvline(crossing, color="black", lw=0.8)
    if math.isfinite(low):
        right.axvspan(low, high, color="black", alpha=0.12, lw=0)
    value_axis(right, "accuracy (%)")
    right.set_xlabel(column.replace("_", " "))
    right.xaxis.set_major_locator(MaxNLocator(MOST_TICKS))
    right.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    right.legend(frameon=False, loc="upper right")
    return figure


def _heat_map(axes: Axes, cells: pd.DataFrame, names: list[str], values: list[float], column: str) -> None:
    means = cells.groupby(["name", column])["gap"].mean().unstack(column)
    gaps = means.reindex(index=names, columns=values).to_numpy(dtype=float)
    drawn = axes.imshow(gaps, cmap=COLOUR_MAP, vmin=-100, vmax=100, aspect="auto")
    for (row, place), gap in np.ndenumerate(gaps):
        if math.isfinite(gap):
            axes.text(place, row, f"{gap:.0f}", ha="center", va="center", color="black" if gap > 0 else "white")
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values], rotation=45)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel(column.replace("_", " "))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.figure.colorbar(drawn, ax=axes, label="D minus D_shift (points)")
