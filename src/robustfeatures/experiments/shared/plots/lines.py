"""Curves with a band over seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from robustfeatures.experiments.shared.plots.style import (
    COLOURS,
    MARKERS,
    STYLES,
    distinct,
    label_horizontal,
    leftmost,
    legend_above,
    log_axis,
    make_panels,
    mark_published,
    published_handle,
    value_axis,
)

# Curves with at most this many points mark each of them. Longer curves have about as many markers if line styles alone
# do not tell them apart.
FEW_POINTS = 15


def curves(
    rows: pd.DataFrame,
    *,
    line: str,
    x: str,
    xlabel: str,
    panel: str | None = None,
    line_label: Callable[[Any], str] = str,
    panel_label: Callable[[Any], str] = str,
    value: str = "accuracy",
    raw: str | None = None,
    ylabel: str = "accuracy (%)",
    log_x: bool = False,
    log_y: bool = False,
    published: pd.DataFrame | None = None,
) -> Figure:
    """`value` against `x`: a panel per value of `panel`, a line with its band over seeds per value of `line`.

    Lines are means, bands standard deviations. `raw` names the unsmoothed values, drawn thin. `published`
    (`results.comparable_rows`) has the columns `panel`, `line`, `value` and `x`, drawn as hollow diamonds. Without `x`
    they stand at the end of the curve.
    """
    panels, lines = distinct(rows[panel]) if panel else [None], distinct(rows[line])
    width = 4.5 if len(panels) == 1 else 4.0 if len(panels) == 2 else 3.2
    figure, grid = make_panels(len(panels), width=width, height=3.2)
    for axes, name in zip(grid, panels, strict=True):
        part = rows if panel is None else rows[rows[panel] == name]
        printed = published if panel is None or published is None else published[published[panel] == name]
        for number, each in enumerate(lines):
            mine = part[part[line] == each]
            _curve(axes, mine, x=x, value=value, number=number, many=len(lines) > len(STYLES))
            if raw is not None:
                means = mine.groupby(x)[raw].mean()
                axes.plot(means.index.to_numpy(), means, color=COLOURS[number % len(COLOURS)], lw=0.5, alpha=0.6)
            if printed is not None:
                here = printed[printed[line] == each]
                places = here[x].to_list() if x in here else [part[x].max()] * len(here)
                mark_published(axes, places, here[value].to_list(), COLOURS[number % len(COLOURS)])
        if panel is not None:
            axes.set_title(panel_label(name), fontsize=10)
        value_axis(axes, ylabel, log=log_y)
        if axes not in leftmost(grid):
            axes.set_ylabel("")
        if log_x:
            log_axis(axes, "x")
        elif pd.api.types.is_integer_dtype(rows[x]):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    label_horizontal(figure, grid, xlabel)
    handles = grid[0].get_legend_handles_labels()[0]
    for handle, each in zip(handles, lines, strict=True):
        handle.set_label(line_label(each))
    legend_above(figure, [*handles, *([published_handle()] if published is not None else [])])
    return figure


def _curve(axes: Axes, rows: pd.DataFrame, *, x: str, value: str, number: int, many: bool) -> None:
    """One line and its band, in the colour, style and marker of this number."""
    part = rows.groupby(x)[value].agg(["mean", "std"])
    band = part["std"].fillna(0.0)
    colour = COLOURS[number % len(COLOURS)]
    marked = many or len(part) <= FEW_POINTS
    axes.plot(
        part.index.to_numpy(),
        part["mean"],
        linestyle=STYLES[number % len(STYLES)],
        marker=MARKERS[number % len(MARKERS)] if marked else None,
        markevery=max(1, len(part) // FEW_POINTS),
        markersize=3.5,
        color=colour,
        label=str(number),
    )
    if (band > 0).any():
        axes.fill_between(
            part.index.to_numpy(), part["mean"] - band, part["mean"] + band, color=colour, alpha=0.2, lw=0
        )
