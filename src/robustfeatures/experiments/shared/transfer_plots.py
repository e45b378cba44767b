"""The figure of A3: matrices of transfer rates, and transfer rate against accuracy on D after training on D_det."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from robustfeatures.experiments.shared.plots.style import COLOURS, MARKERS
from robustfeatures.experiments.shared.summaries import correlation


def plot_matrices_and_lines(rates: pd.DataFrame, beside: pd.DataFrame, *, attacks: Sequence[str]) -> Figure:
    """A column per kind of attack: `rates` (row, target, attack, seed, transfer_rate in percent) above `beside`.

    `beside` has the columns target, attack, seed, transfer_rate and accuracy, both in percent.
    """
    figure = Figure(figsize=(4.4 * len(attacks), 6.4), layout="constrained")
    grid = figure.subplots(2, len(attacks), squeeze=False, height_ratios=(1, 1.1))
    for column, attack in enumerate(attacks):
        _matrix(grid[0, column], rates[rates["attack"] == attack])
        grid[0, column].set_title(attack)
        _scatter(grid[1, column], beside[beside["attack"] == attack])
    handles, labels = grid[1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def _matrix(axes: Axes, rates: pd.DataFrame) -> None:
    names = list(rates["row"].unique())
    values = rates.pivot_table(index="row", columns="target", values="transfer_rate", dropna=False)
    matrix = values.reindex(index=names, columns=names).to_numpy(dtype=float)
    axes.imshow(matrix, cmap="Greys", vmin=0, vmax=100, aspect="auto", interpolation="nearest")
    for (row, column), value in np.ndenumerate(matrix):
        shown = "-" if np.isnan(value) else f"{value:.0f}"
        axes.text(column, row, shown, ha="center", va="center", color="white" if value > 55 else "black", fontsize=8)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_xlabel("fooled network (cells: transfer rate, %)")
    axes.set_ylabel("made on")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _scatter(axes: Axes, beside: pd.DataFrame) -> None:
    for number, (name, seeds) in enumerate(beside.groupby("target", sort=False)):
        style: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "marker": MARKERS[number % len(MARKERS)],
            "linestyle": "none",
        }
        axes.plot(seeds["accuracy"], seeds["transfer_rate"], markersize=2.5, alpha=0.6, **style)
        axes.plot(seeds["accuracy"].mean(), seeds["transfer_rate"].mean(), markersize=7, label=str(name), **style)
    means = beside.groupby("target")[["accuracy", "transfer_rate"]].mean().dropna()
    if len(means) > 2 and means.nunique().min() > 1:
        # A slow import that few tables and figures need.
        from scipy import stats

        line = stats.linregress(means["accuracy"], means["transfer_rate"])
        ends = np.array([means["accuracy"].min(), means["accuracy"].max()])
        axes.plot(ends, line.intercept + line.slope * ends, "-", color="black", linewidth=0.8)
        found = correlation(means["accuracy"].tolist(), means["transfer_rate"].tolist())
        axes.set_title(f"r = {found.value:.2f} (95 % interval {found.low:.2f} to {found.high:.2f})", fontsize=8)
    axes.set_xlabel("accuracy on D, trained on D_det (%)")
    axes.set_ylabel("transfer rate (%)")
    axes.set_ylim(-2, 102)
