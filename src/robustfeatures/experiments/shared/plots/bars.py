"""Grouped bars: one measured quantity by two named columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from numpy.typing import NDArray

from robustfeatures.experiments.shared.plots.style import (
    COLOURS,
    HATCHES,
    TEXT,
    TITLE,
    WIDEST,
    band_ends,
    distinct,
    label_horizontal,
    leftmost,
    legend_above,
    make_panels,
    mark_published,
    published_handle,
    seed_deviation,
    text_width,
    value_axis,
    wrap,
)

# Inches of one bar, of the narrowest and of the widest group, and of the vertical axis with its label.
BAR, NARROW, WIDE, ASIDE = 0.3, 0.9, 1.3, 0.9
# The share of a group that its bars fill.
FILLED = 0.8


def grouped_bars(
    rows: pd.DataFrame,
    *,
    group: str,
    bar: str,
    xlabel: str,
    panel: str | None = None,
    bar_label: Callable[[Any], str] = str,
    value: str = "accuracy",
    ylabel: str = "accuracy (%)",
    published: pd.DataFrame | None = None,
) -> Figure:
    """A group of bars per value of `group`, a bar per value of `bar`: means of `value`, whiskers, a dot per seed.

    There is a panel per value of `panel`. Bars without any value leave no gap in their group.
    `published` (`results.comparable_rows`) has the columns `group`, `bar` and `value` and is drawn as hollow diamonds.
    """
    panels, bars = distinct(rows[panel]) if panel else [None], distinct(rows[bar])
    groups = distinct(rows[group])
    names = [wrap(str(name), WIDE) for name in groups]
    slot = max(BAR * len(bars) / FILLED, NARROW, *(text_width(name) + 0.15 for name in names))
    width = min(max(5.0 if len(panels) == 1 else 4.0, slot * len(groups) + ASIDE), WIDEST)
    figure, grid = make_panels(len(panels), width=width, height=3.2)
    handles: dict[Any, BarContainer] = {}
    for axes, each in zip(grid, panels, strict=True):
        part = rows if panel is None else rows[rows[panel] == each]
        printed = published if panel is None or published is None else published[published[panel] == each]
        for name, container in _draw(
            axes, part, printed, groups, bars, group=group, bar=bar, value=value, ylabel=ylabel
        ):
            container.set_label(bar_label(name))
            handles.setdefault(name, container)
        _name_groups(axes, names, (width - ASIDE) / len(groups))
        value_axis(axes, ylabel if axes in leftmost(grid) else "(%)")
        if axes not in leftmost(grid):
            axes.set_ylabel("")
        if panel is not None:
            axes.set_title(wrap(str(each), width - ASIDE, TITLE), fontsize=TITLE)
    label_horizontal(figure, grid, xlabel)
    shown: list[Any] = [handles[name] for name in bars] if len(bars) > 1 else []
    shown += [published_handle()] if published is not None else []
    if shown:
        legend_above(figure, shown)
    return figure


def _draw(
    axes: Axes,
    rows: pd.DataFrame,
    published: pd.DataFrame | None,
    groups: Sequence[Any],
    bars: Sequence[Any],
    *,
    group: str,
    bar: str,
    value: str,
    ylabel: str,
) -> list[tuple[Any, BarContainer]]:
    """Draw the bars of one panel: each bar's name with what is drawn of it."""
    width = FILLED / len(bars)
    present = rows.dropna(subset=value)
    members = [[each for each in bars if ((present[group] == name) & (present[bar] == each)).any()] for name in groups]
    drawn = []
    for number, each in enumerate(bars):
        places, found = [], []
        for place, (name, inside) in enumerate(zip(groups, members, strict=True)):
            if each in inside:
                places.append(place + (inside.index(each) - (len(inside) - 1) / 2) * width)
                found.append(present[(present[group] == name) & (present[bar] == each)][value].to_numpy())
                if published is not None:
                    printed = published[(published[group] == name) & (published[bar] == each)][value]
                    mark_published(axes, [places[-1]] * len(printed), printed.to_list())
        if found:
            drawn.append((each, draw_bars(axes, places, found, width, number, ylabel)))
    return drawn


def draw_bars(
    axes: Axes, places: Sequence[float], found: Sequence[NDArray[np.float64]], width: float, number: int, ylabel: str
) -> BarContainer:
    """Bars in the colour and hatch of `number`: the mean of each of `found`, its deviation, and a dot per seed.

    Whiskers of an axis labelled in percent stay within 0 to 100. With one seed there is neither whisker nor dot.
    """
    drawn = axes.bar(
        places,
        [values.mean() for values in found],
        width,
        yerr=np.transpose([_whisker(values, ylabel) for values in found]),
        color=COLOURS[1 + number % (len(COLOURS) - 1)],
        edgecolor="black",
        linewidth=0.6,
        hatch=HATCHES[number % len(HATCHES)],
        error_kw={"elinewidth": 0.8, "capsize": 2},
    )
    for place, values in zip(places, found, strict=True):
        if len(values) > 1:
            axes.plot([place] * len(values), values, ".", color="black", markersize=2.5)
    return drawn


def _whisker(values: NDArray[np.float64], ylabel: str) -> tuple[float, float]:
    """How far a whisker of one standard deviation reaches below and above the mean; NaN, which draws none, for one."""
    middle = float(values.mean())
    low, high = band_ends(middle, seed_deviation(list(values)), ylabel)
    return middle - float(low), float(high) - middle


def _name_groups(axes: Axes, names: Sequence[str], slot: float) -> None:
    """Name the groups, at a slant where a name is wider than its group (both in inches)."""
    slanted = max(text_width(name, TEXT) for name in names) > slot - 0.05
    shown = [name.replace("\n", " ") for name in names] if slanted else list(names)
    axes.set_xticks(np.arange(len(names)), shown)
    if slanted:
        for tick in axes.get_xticklabels():
            tick.set(rotation=30, ha="right", rotation_mode="anchor")
