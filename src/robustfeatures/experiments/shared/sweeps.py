"""Accuracy against a swept quantity, and the size at which the gain of one training over another ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from robustfeatures.experiments.shared.intervals import confidence_interval
from robustfeatures.experiments.shared.plots.style import COLOURS, MARKERS, STYLES, log_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def find_crossing(samples: Sequence[float], gains: Sequence[float]) -> float:
    """The size at which a gain last turns from positive to zero or negative; `samples` are in rising order.

    Between two sizes the gain is interpolated linearly in the logarithm of the size. NaN if the gain never turns, or is
    positive at the largest size.
    """
    for place in range(len(gains) - 1, 0, -1):
        before, after = gains[place - 1], gains[place]
        if after > 0:
            return float("nan")
        if before > 0:
            share = before / (before - after)
            low, high = np.log(samples[place - 1]), np.log(samples[place])
            return float(np.exp(low + share * (high - low)))
    return float("nan")


def geometric_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of positive values, one per seed, and its 95 % interval; nan where fewer than two are finite."""
    logarithms = np.log(np.asarray(values, dtype=float))
    logarithms = logarithms[np.isfinite(logarithms)]
    if len(logarithms) < 2:
        return (float("nan"),) * 3
    low, high = confidence_interval(logarithms)
    return float(np.exp(logarithms.mean())), float(np.exp(low)), float(np.exp(high))


def plot_panels(
    rows: pd.DataFrame,
    *,
    x: str,
    xlabel: str,
    line: str | None = None,
    log_x: bool = False,
    crossings: pd.DataFrame | None = None,
) -> Figure:
    """Accuracy (percent) against `x`: a panel with its own axes per norm, a line with its band per value of `line`.

    Lines are means over seeds, bands standard deviations.
    `crossings` (columns norm, `line`, crossing, crossing_low, crossing_high) are drawn as bars at the bottom.
    """
    norms = list(rows["norm"].unique())
    figure = Figure(figsize=(4.2 * len(norms), 3.4), layout="constrained")
    for axes, norm in zip(figure.subplots(1, len(norms), squeeze=False)[0], norms, strict=True):
        part = rows[rows["norm"] == norm]
        lines = [None] if line is None else sorted(part[line].unique())
        for number, value in enumerate(lines):
            _line(axes, part if value is None else part[part[line] == value], x, value, number)
        if crossings is not None:
            found = crossings[crossings["norm"] == norm].dropna(subset="crossing").to_dict("records")
            _bars(axes, [(lines.index(row[line]), row) for row in found])
        if log_x:
            log_axis(axes, "x")
        axes.set(xlabel=xlabel, ylabel="accuracy (%)")
        if line is None:
            axes.set_title(norm)
        else:
            # The legend is above the panel because the bars are at its bottom.
            axes.set_title(f"{norm}, {line.replace('_', ' ')}", pad=22)
            axes.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 0.99), ncols=len(lines))
    return figure


def _line(axes: Axes, rows: pd.DataFrame, x: str, value: float | None, number: int) -> None:
    found = rows.groupby(x)["accuracy"].agg(["mean", "std"])
    spread = found["std"].fillna(0.0)
    colour = COLOURS[number % len(COLOURS)]
    axes.plot(
        found.index,
        found["mean"],
        linestyle=STYLES[number % len(STYLES)],
        marker=MARKERS[number % len(MARKERS)],
        markersize=3.5,
        color=colour,
        label=None if value is None else f"{value:g}",
    )
    axes.fill_between(found.index, found["mean"] - spread, found["mean"] + spread, color=colour, alpha=0.2, lw=0)


def _bars(axes: Axes, crossings: Sequence[tuple[int, Mapping[Any, Any]]]) -> None:
    """Draw each crossing below all lines, in the colour of its line."""
    low, high = axes.get_ylim()
    gap = 0.05 * (high - low)
    for place, (number, row) in enumerate(crossings):
        beyond = [[row["crossing"] - row["crossing_low"]], [row["crossing_high"] - row["crossing"]]]
        axes.errorbar(
            row["crossing"],
            low - gap * (place + 1),
            xerr=beyond,
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=3.5,
            capsize=2,
            linewidth=1,
        )
