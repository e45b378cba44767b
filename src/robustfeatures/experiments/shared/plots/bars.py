"""Grouped bars: one measured quantity by two named columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from robustfeatures.experiments.shared.plots.style import (
    COLOURS,
    HATCHES,
    distinct,
    legend_above,
    mark_published,
    published_handle,
    seed_deviation,
    value_axis,
)


def grouped_bars(
    rows: pd.DataFrame,
    *,
    group: str,
    bar: str,
    xlabel: str,
    bar_label: Callable[[Any], str] = str,
    value: str = "accuracy",
    ylabel: str = "accuracy (%)",
    published: pd.DataFrame | None = None,
) -> Figure:
    """One group of bars per value of `group`, one bar per value of `bar`: means of `value`, whiskers, a dot per seed.

    `published` (`results.comparable_rows`) has the columns `group`, `bar` and `value` and is drawn as hollow diamonds.
    """
    groups, bars = distinct(rows[group]), distinct(rows[bar])
    width = 0.8 / len(bars)
    figure = Figure(figsize=(max(4.0, 0.3 * len(groups) * len(bars), 1.2 * len(groups) + 1), 3.2), layout="constrained")
    axes = figure.subplots()
    handles = []
    for number, each in enumerate(bars):
        found = [rows[(rows[group] == name) & (rows[bar] == each)][value].dropna().to_numpy() for name in groups]
        places = np.arange(len(groups)) + (number - (len(bars) - 1) / 2) * width
        drawn = axes.bar(
            places,
            [values.mean() if len(values) else np.nan for values in found],
            width,
            yerr=[seed_deviation(values) for values in found],
            color=COLOURS[1 + number % (len(COLOURS) - 1)],
            edgecolor="black",
            linewidth=0.6,
            hatch=HATCHES[number % len(HATCHES)],
            error_kw={"elinewidth": 0.8, "capsize": 2},
            label=bar_label(each),
        )
        handles.append(drawn)
        for place, name, values in zip(places, groups, found, strict=True):
            axes.plot([place] * len(values), values, ".", color="black", markersize=2.5)
            if published is not None:
                printed = published[(published[group] == name) & (published[bar] == each)][value]
                mark_published(axes, [place] * len(printed), printed.to_list())
    axes.set_xticks(np.arange(len(groups)), [str(name) for name in groups])
    axes.set_xlabel(xlabel)
    value_axis(axes, ylabel)
    shown = [*(handles if len(bars) > 1 else []), *([published_handle()] if published is not None else [])]
    if shown:
        legend_above(figure, shown)
    return figure
