"""Curves with a band over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from robustfeatures.experiments.shared.plots.style import (
    COLOURS,
    MARKERS,
    STYLES,
    TITLE,
    band_ends,
    distinct,
    label_horizontal,
    leftmost,
    legend_above,
    log_axis,
    make_panels,
    mark_published,
    published_handle,
    value_axis,
    wrap,
)

# Curves with at most this many points mark each of them. Longer curves have about as many markers if line styles alone
# do not tell them apart.
FEW_POINTS = 15
# The look of unsmoothed lines, and the colour of legend entries that are about lines of every colour.
THIN: dict[str, Any] = {"lw": 0.5, "alpha": 0.6}
EVERY_COLOUR = "0.4"


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
    levels: Mapping[Any, pd.DataFrame] | None = None,
    level_label: Callable[[Any], str] = str,
    published: pd.DataFrame | None = None,
) -> Figure:
    """`value` against `x`: a panel per value of `panel`, a line with its band over seeds per value of `line`.

    Lines are means, bands standard deviations; those of percentages stay within 0 to 100. If `value` is a moving
    average, `raw` names what it is the average of, drawn thin. `published` (`results.comparable_rows`) has the columns
    `panel`, `line`, `value` and `x`, drawn as hollow diamonds. Without `x` they stand at the end of the curve. `levels`
    are further rows by name, whose `value` does not depend on `x`: their mean is a line across every panel, with its
    published value on the right edge.
    """
    panels, lines = distinct(rows[panel]) if panel else [None], distinct(rows[line])
    width = 4.5 if len(panels) == 1 else 4.0 if len(panels) == 2 else 3.2
    figure, grid = make_panels(len(panels), width=width, height=3.2)
    handles: dict[Any, Line2D] = {}
    for axes, name in zip(grid, panels, strict=True):
        part = rows if panel is None else rows[rows[panel] == name]
        printed = published if panel is None or published is None else published[published[panel] == name]
        for number, each in enumerate(lines):
            mine = part[part[line] == each]
            if not len(mine):
                continue
            many, colour = len(lines) > len(STYLES), COLOURS[number % len(COLOURS)]
            drawn = draw_mean(
                axes, mine, x=x, value=value, ylabel=ylabel, number=number, label=line_label(each), many=many
            )
            handles.setdefault(each, drawn)
            if raw is not None:
                axes.plot(*zip(*mine.groupby(x)[raw].mean().items(), strict=True), color=colour, **THIN)
            if printed is not None:
                here = printed[printed[line] == each]
                places = here[x].to_list() if x in here else [part[x].max()] * len(here)
                mark_published(axes, places, here[value].to_list(), colour)
        for number, (each, mine) in enumerate((levels or {}).items(), start=len(lines)):
            handles[each] = _draw_level(axes, mine[value], ylabel, number, level_label(each))
            if printed is not None:
                here = printed[printed[line] == each][value]
                colour, right = COLOURS[number % len(COLOURS)], axes.get_yaxis_transform()
                mark_published(axes, [1.0] * len(here), here.to_list(), colour, transform=right)
        if panel is not None:
            axes.set_title(wrap(panel_label(name), width - 0.7, TITLE), fontsize=TITLE)
        _scale(axes, rows[x], ylabel, named=axes in leftmost(grid), log_x=log_x)
    label_horizontal(figure, grid, xlabel)
    shown = [*handles.values(), *(_name_widths(xlabel) if raw is not None else [])]
    legend_above(figure, [*shown, *([published_handle()] if published is not None else [])])
    return figure


def _scale(axes: Axes, values: pd.Series, ylabel: str, *, named: bool, log_x: bool) -> None:
    value_axis(axes, ylabel)
    if not named:
        axes.set_ylabel("")
    if log_x:
        log_axis(axes, "x")
    elif pd.api.types.is_integer_dtype(values):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _name_widths(xlabel: str) -> list[Line2D]:
    """The legend entries of thick and thin lines, which every colour has."""
    return [
        Line2D([], [], color=EVERY_COLOUR, lw=2.2, label="moving average"),
        Line2D([], [], color=EVERY_COLOUR, label=f"each {xlabel}", **THIN),
    ]


def _draw_level(axes: Axes, values: pd.Series, ylabel: str, number: int, label: str) -> Line2D:
    """The mean of the values as a horizontal line, their standard deviation as a band."""
    colour, mean, deviation = COLOURS[number % len(COLOURS)], values.mean(), values.std()
    if deviation > 0:
        low, high = band_ends(mean, deviation, ylabel)
        axes.axhspan(float(low), float(high), color=colour, alpha=0.2, lw=0)
    return axes.axhline(mean, color=colour, linestyle=STYLES[number % len(STYLES)], lw=1.5, label=label)


def draw_mean(
    axes: Axes,
    rows: pd.DataFrame,
    *,
    x: str,
    value: str,
    ylabel: str,
    number: int,
    label: str,
    many: bool = False,
) -> Line2D:
    """The means of `value` over seeds against `x`, and their standard deviations as a band.

    Colour, style and marker are those of `number`. Of lines that coincide the later one is narrower, so both are seen.
    The band of an axis labelled in percent stays within 0 to 100. With one seed there is none. `many` marks long curves
    too. A single point is a mark without a line.
    """
    part = rows.groupby(x)[value].agg(["mean", "std"])
    places, colour = part.index.to_numpy(), COLOURS[number % len(COLOURS)]
    (drawn,) = axes.plot(
        places,
        part["mean"].to_numpy(),
        linestyle=STYLES[number % len(STYLES)] if len(part) > 1 else "none",
        marker=MARKERS[number % len(MARKERS)] if many or len(part) <= FEW_POINTS else None,
        markevery=max(1, len(part) // FEW_POINTS),
        markersize=3.5 if len(part) > 1 else 6,
        lw=max(1.0, 2.2 - 0.25 * number),
        color=colour,
        label=label,
    )
    if (part["std"] > 0).any():
        axes.fill_between(places, *band_ends(part["mean"], part["std"], ylabel), color=colour, alpha=0.2, lw=0)
    return drawn
