"""The figure of A3: matrices of transfer rates, and transfer rate against accuracy on D after training on D_det."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from robustfeatures.experiments.shared.plots.style import (
    COLOURS,
    MARKERS,
    SMALL,
    TEXT,
    TITLE,
    WIDEST,
    label_horizontal,
    legend_above,
)
from robustfeatures.experiments.shared.summaries import (
    FEWEST_CLUSTERS,
    average_architectures,
    correlation,
    count_clusters,
)


def plot_matrices_and_lines(rates: pd.DataFrame, beside: pd.DataFrame, *, attacks: Sequence[str]) -> Figure:
    """A column per kind of attack: `rates` (row, target, attack, seed, transfer_rate in percent) above `beside`.

    `beside` has the columns target, attack, seed, transfer_rate and accuracy, both in percent.
    """
    figure = Figure(figsize=(min(4.4 * len(attacks), WIDEST), 7.0), layout="constrained")
    grid = figure.subplots(2, len(attacks), squeeze=False, height_ratios=(1, 1.1))
    for column, attack in enumerate(attacks):
        _matrix(grid[0, column], rates[rates["attack"] == attack], named=column == 0)
        grid[0, column].set_title(attack, fontsize=TITLE)
        _scatter(grid[1, column], beside[beside["attack"] == attack])
    label_horizontal(figure, list(grid[1]), "accuracy on D, trained on D_det (%)")
    grid[1, 0].set_ylabel("transfer rate (%)")
    legend_above(figure, grid[1, 0].get_legend_handles_labels()[0])
    return figure


def _matrix(axes: Axes, rates: pd.DataFrame, *, named: bool) -> None:
    names = list(rates["row"].unique())
    values = rates.pivot_table(index="row", columns="target", values="transfer_rate", dropna=False)
    matrix = values.reindex(index=names, columns=names).to_numpy(dtype=float)
    axes.imshow(matrix, cmap="Greys", vmin=0, vmax=100, aspect="auto", interpolation="nearest")
    for (row, column), value in np.ndenumerate(matrix):
        shown = "-" if np.isnan(value) else f"{value:.0f}"
        axes.text(
            column, row, shown, ha="center", va="center", color="white" if value > 55 else "black", fontsize=SMALL
        )
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor", fontsize=SMALL)
    axes.set_yticks(range(len(names)), names if named else [""] * len(names), fontsize=SMALL)
    axes.set_xlabel("fooled network (cells: transfer rate, %)")
    if named:
        axes.set_ylabel("made on")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _scatter(axes: Axes, beside: pd.DataFrame) -> None:
    """Networks as large points, their seeds as small ones, and r; a line through enough clusters of networks."""
    for number, (name, seeds) in enumerate(beside.groupby("target", sort=False)):
        style: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "marker": MARKERS[number % len(MARKERS)],
            "linestyle": "none",
        }
        axes.plot(seeds["accuracy"], seeds["transfer_rate"], markersize=2.5, alpha=0.6, **style)
        axes.plot(seeds["accuracy"].mean(), seeds["transfer_rate"].mean(), markersize=7, label=str(name), **style)
    means = average_architectures(beside)
    if len(means) > 2 and means.nunique().min() > 1:
        found = correlation(means["accuracy"].tolist(), means["transfer_rate"].tolist())
        axes.set_title(f"r = {found.value:.2f} (95 % interval {found.low:.2f} to {found.high:.2f})", fontsize=TEXT)
        if count_clusters(means["accuracy"]) >= FEWEST_CLUSTERS:
            slope, intercept = np.polyfit(means["accuracy"], means["transfer_rate"], 1)
            ends = np.array([means["accuracy"].min(), means["accuracy"].max()])
            axes.plot(ends, intercept + slope * ends, "-", color="black", linewidth=0.8, label="least squares")
    axes.set_ylim(-2, 102)
