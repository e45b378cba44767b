"""Accuracy against a swept quantity: its trend, and the size at which the gain of one training over another ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from robustfeatures.experiments.shared.intervals import confidence_interval
from robustfeatures.experiments.shared.plots.lines import draw_mean
from robustfeatures.experiments.shared.plots.style import (
    COLOURS,
    MARKERS,
    SMALL,
    TITLE,
    WIDEST,
    accuracy_limits,
    log_axis,
    ticks_at,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

YLABEL = "accuracy (%)"
# Inches of a panel, and of its vertical axis with its label.
PANEL, AXIS = 4.4, 0.8


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's rank correlation, -1 to 1; 0 if one of the lists is constant."""
    # A slow import that few tables and figures need.
    from scipy import stats

    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(stats.spearmanr(x, y).statistic)


def find_crossing(samples: Sequence[float], gains: Sequence[float]) -> float:
    """The size at which a gain last turns from positive to zero or negative; `samples` are in rising order.

    Between two sizes the gain is interpolated linearly in the logarithm of the size. NaN if the gain never turns, is
    positive at the largest size, or is zero there for the first time: on few test images a small gain is often zero.
    """
    last = len(gains) - 1
    for place in range(last, 0, -1):
        before, after = gains[place - 1], gains[place]
        if after > 0:
            return float("nan")
        if before > 0:
            if place == last and after == 0:
                return float("nan")
            share = before / (before - after)
            low, high = np.log(samples[place - 1]), np.log(samples[place])
            return float(np.exp(low + share * (high - low)))
    return float("nan")


def geometric_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of positive values, one per seed, and its 95 % interval; NaN if one of the values is.

    The seeds that have a value are no sample of all seeds.
    """
    logarithms = np.log(np.asarray(values, dtype=float))
    low, high = confidence_interval(logarithms)
    return float(np.exp(logarithms.mean())), float(np.exp(low)), float(np.exp(high))


def plot_panels(
    rows: pd.DataFrame,
    *,
    x: str,
    xlabel: str,
    line: str | None = None,
    line_label: Callable[[float], str] = "{:g}".format,
    log_x: bool = False,
    crossings: pd.DataFrame | None = None,
) -> Figure:
    """Accuracy (percent) against `x`: a panel per norm on one scale of accuracy, a line per value of `line`.

    Lines are means over seeds, bands standard deviations within 0 to 100 %. A logarithmic axis has its ticks where
    something was measured.
    `crossings` (columns norm, `line`, crossing, crossing_low, crossing_high) stand in a strip below each panel.
    """
    norms = list(rows["norm"].unique())
    strip = crossings is not None and crossings["crossing"].notna().any()
    figure = Figure(figsize=(min(PANEL * len(norms), WIDEST), 4.6 if strip else 3.4), layout="constrained")
    grid = figure.subplots(
        2 if strip else 1, len(norms), squeeze=False, sharey="row", height_ratios=(4, 1) if strip else (1,)
    )
    heights: list[int] = []
    for column, norm in enumerate(norms):
        axes, part = grid[0, column], rows[rows["norm"] == norm]
        lines = [None] if line is None else sorted(part[line].unique())
        for number, each in enumerate(lines):
            mine = part if each is None else part[part[line] == each]
            label = "" if each is None else line_label(each)
            draw_mean(axes, mine, x=x, value="accuracy", ylabel=YLABEL, number=number, label=label)
        if log_x:
            for place in grid[:, column]:
                log_axis(place, "x")
        axes.set_title(norm, fontsize=TITLE, pad=6 if line is None else 22)
        if line is not None:
            axes.legend(frameon=False, fontsize=SMALL, loc="lower center", bbox_to_anchor=(0.5, 0.99), ncols=len(lines))
        if strip:
            assert crossings is not None
            found = crossings[crossings["norm"] == norm].dropna(subset="crossing").to_dict("records")
            placed = [(lines.index(row[line]), row) for row in found]
            _strip(grid[1, column], axes, placed)
            heights += [-number for number, _ in placed]
        if log_x:
            for place in grid[:, column]:
                ticks_at(place, part[x].unique(), figure.get_figwidth() / len(norms) - AXIS)
        grid[-1, column].set_xlabel(xlabel)
    if strip:
        # The strips share their limits, also one without a crossing.
        grid[1, 0].set(ylim=(min(heights) - 0.5, max(heights) + 1.0), yticks=[])
    grid[0, 0].set(ylabel=YLABEL, ylim=accuracy_limits(rows["accuracy"]))
    return figure


def _strip(axes: Axes, above: Axes, crossings: Sequence[tuple[int, Mapping[Any, Any]]]) -> None:
    """Draw each crossing with its interval and its number, in the colour of its line, below the panel `above`."""
    for number, row in crossings:
        axes.errorbar(
            row["crossing"],
            -number,
            xerr=[[row["crossing"] - row["crossing_low"]], [row["crossing_high"] - row["crossing"]]],
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=3.5,
            capsize=2,
            linewidth=1,
        )
        axes.annotate(
            f"{row['crossing']:g}",
            (row["crossing"], -number),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=SMALL,
        )
    above.tick_params(labelbottom=False, which="both")
    axes.set_xlim(above.get_xlim())
    axes.spines["left"].set_visible(False)
    axes.set_title("size at which the gain ends" if crossings else "no gain ends", fontsize=SMALL)
