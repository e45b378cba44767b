"""Accuracy against a quantity that is swept, and where the gain of one training over another ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from robustfeatures.experiments.claims import CONFIDENCE
from robustfeatures.experiments.plots import COLOURS, STYLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = ("o", "s", "^", "D", "v", "P")


def crossing(samples: Sequence[float], gains: Sequence[float]) -> float:
    """Where a gain last turns from positive to zero or below as `samples`, in rising order, grow.

    Between two sizes the gain is taken to be linear in the logarithm of the size. nan where it never turns, or is
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


def interval_of_logarithms(values: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of positive values, one per seed, and its 95 % interval (Student's t); nan with fewer than two."""
    logarithms = np.log(np.asarray(values, dtype=float))
    logarithms = logarithms[np.isfinite(logarithms)]
    if len(logarithms) < 2:
        return (float("nan"),) * 3
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(logarithms) - 1) * stats.sem(logarithms))
    middle = float(logarithms.mean())
    return float(np.exp(middle)), float(np.exp(middle - half)), float(np.exp(middle + half))


def lines(
    rows: pd.DataFrame, *, x: str, line: str, xlabel: str, logarithmic: bool = False, crossings: pd.DataFrame | None
) -> Figure:
    """Accuracy (percent) against `x`: a panel per norm, a line with a seed band per value of `line`.

    `crossings` (columns norm, `line`, crossing, crossing_low, crossing_high) are drawn as bars below the lines.
    """
    norms = list(rows["norm"].unique())
    figure = Figure(figsize=(4.2 * len(norms), 3.4), layout="constrained")
    for axes, norm in zip(figure.subplots(1, len(norms), sharey=True, squeeze=False)[0], norms, strict=True):
        part = rows[rows["norm"] == norm]
        values = sorted(part[line].unique())
        for number, value in enumerate(values):
            found = part[part[line] == value].groupby(x)["accuracy"].agg(["mean", "std"])
            spread = found["std"].fillna(0.0)
            colour, style = COLOURS[number % len(COLOURS)], STYLES[number % len(STYLES)]
            label = f"{line.replace('_', ' ')} {value:g}" if len(values) > 1 else None
            marker = MARKERS[number % len(MARKERS)]
            axes.plot(found.index, found["mean"], style, color=colour, marker=marker, markersize=3.5, label=label)
            axes.fill_between(
                found.index, found["mean"] - spread, found["mean"] + spread, color=colour, alpha=0.2, lw=0
            )
        if crossings is not None:
            _draw_crossings(axes, crossings[crossings["norm"] == norm], line, values)
        if logarithmic:
            axes.set_xscale("log")
        axes.set_title(norm)
        axes.set_xlabel(xlabel)
        axes.set_ylabel("accuracy (%)")
        axes.label_outer()
        if len(values) > 1:
            axes.legend(frameon=False, fontsize=7, loc="lower right")
    return figure


def _draw_crossings(axes: Axes, crossings: pd.DataFrame, line: str, values: Sequence[float]) -> None:
    bottom = axes.get_ylim()[0]
    for row in crossings.dropna(subset="crossing").to_dict("records"):
        number = list(values).index(row[line])
        beyond = [[row["crossing"] - row["crossing_low"]], [row["crossing_high"] - row["crossing"]]]
        colour = COLOURS[number % len(COLOURS)]
        axes.errorbar(
            row["crossing"], bottom + 1.5 * number, xerr=beyond, color=colour, marker="|", capsize=2, linewidth=1
        )
