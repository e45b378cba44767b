"""The figure of X4: means and their intervals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from robustfeatures.experiments.shared.intervals import interval_of_share
from robustfeatures.experiments.shared.plots.style import (
    COLOURS,
    WIDEST,
    distinct,
    label_horizontal,
    legend_above,
    text_width,
)

# Seeds stand this far below their interval, in rows.
BELOW = 0.28


def plot_intervals(rows: pd.DataFrame, *, row: str, panel: str, title: Callable[[float], str]) -> Figure:
    """A panel per value of `panel`, a line per value of `row`: seeds, mean and 95 % interval, in percent.

    Intervals stay within 0 to 100 %.
    """
    names, panels = distinct(rows[row])[::-1], sorted(rows[panel].unique())
    width = 0.4 + max(text_width(name) for name in names) + 2.0 * len(panels)
    figure = Figure(figsize=(min(width, WIDEST), 1.3 + 0.32 * len(names)), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, value in zip(grid, panels, strict=True):
        for place, name in enumerate(names):
            seeds = rows[(rows[row] == name) & (rows[panel] == value)]["accuracy"].to_numpy()
            axes.plot(seeds, np.full(len(seeds), place - BELOW), ".", color=COLOURS[1], markersize=3)
            if len(seeds):
                axes.plot(
                    interval_of_share(seeds), (place, place), "-", color=COLOURS[2], linewidth=4, solid_capstyle="butt"
                )
                axes.plot(seeds.mean(), place, "|", color=COLOURS[0], markersize=8, markeredgewidth=1.5)
        axes.set_title(title(value))
        axes.set_xlim(-2, 102)
        axes.set_ylim(-0.7, len(names) - 0.4)
    grid[0].set_yticks(range(len(names)), names)
    label_horizontal(figure, grid, "accuracy (%)")
    legend_above(
        figure,
        [
            Line2D([], [], color=COLOURS[0], marker="|", markersize=8, mew=1.5, linestyle="none", label="mean"),
            Line2D([], [], color=COLOURS[2], linewidth=4, solid_capstyle="butt", label="its 95 % interval"),
            Line2D([], [], color=COLOURS[1], marker=".", markersize=3, linestyle="none", label="seeds"),
        ],
    )
    return figure
