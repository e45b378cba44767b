"""The figure of A3: matrices of transfer rates, and transfer rate against accuracy on D after training on D_det."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from robustfeatures.experiments.shared.plots.matrices import write_numbers
from robustfeatures.experiments.shared.plots.style import (
    COLOURS,
    MARKERS,
    SMALL,
    TEXT,
    TITLE,
    WIDEST,
    label_horizontal,
    legend_above,
    wrap,
)
from robustfeatures.experiments.shared.summaries import (
    FEWEST_CLUSTERS,
    average_architectures,
    correlation,
    count_clusters,
)


def plot_matrices_and_lines(rates: pd.DataFrame, beside: pd.DataFrame, *, attacks: Sequence[str]) -> Figure:
    """A column per kind of attack: `rates` (row, target, attack, seed, transfer_rate in percent) above `beside`.

    `beside` has the columns target, attack, seed, transfer_rate and accuracy, both in percent, of the first row.
    """
    width = min(4.4 * len(attacks), WIDEST)
    figure = Figure(figsize=(width, 7.6), layout="constrained")
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 1.3))[:, 0]
    matrices, scatters = (list(part.subplots(1, len(attacks), squeeze=False)[0]) for part in (above, below))
    own = rates["row"].iloc[0]
    for column, attack in enumerate(attacks):
        _matrix(matrices[column], rates[rates["attack"] == attack], named=column == 0)
        matrices[column].set_title(attack, fontsize=TITLE)
        found = _scatter(scatters[column], beside[beside["attack"] == attack])
        shown = wrap(f"{attack} examples of {own}", width / len(attacks) - 0.8)
        scatters[column].set_title("\n".join(line for line in (shown, found) if line), fontsize=TEXT)
    label_horizontal(below, scatters, "accuracy on D, trained on D_det (%)")
    scatters[0].set_ylabel("transfer rate (%)")
    legend_above(below, scatters[0].get_legend_handles_labels()[0])
    return figure


def _matrix(axes: Axes, rates: pd.DataFrame, *, named: bool) -> None:
    names = list(rates["row"].unique())
    values = rates.pivot_table(index="row", columns="target", values="transfer_rate", dropna=False)
    matrix = values.reindex(index=names, columns=names).to_numpy(dtype=float)
    drawn = axes.imshow(matrix, cmap="Greys", vmin=0, vmax=100, aspect="auto", interpolation="nearest")
    write_numbers(drawn, matrix, "{:.0f}".format, points=SMALL, missing="-")
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor", fontsize=SMALL)
    axes.set_yticks(range(len(names)), names if named else [""] * len(names), fontsize=SMALL)
    axes.set_xlabel("fooled network (cells: transfer rate, %)")
    if named:
        axes.set_ylabel("made on")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _scatter(axes: Axes, beside: pd.DataFrame) -> str:
    """Networks as large points, their seeds as small ones; a line through enough clusters of networks.

    Return r in words, with its interval where the claim has one, or nothing where there is no r.
    """
    for number, (name, seeds) in enumerate(beside.groupby("target", sort=False)):
        style: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "marker": MARKERS[number % len(MARKERS)],
            "linestyle": "none",
        }
        axes.plot(seeds["accuracy"], seeds["transfer_rate"], markersize=2.5, alpha=0.6, **style)
        axes.plot(seeds["accuracy"].mean(), seeds["transfer_rate"].mean(), markersize=7, label=str(name), **style)
    axes.set_ylim(-2, 102)
    means = average_architectures(beside)
    if len(means) < 3 or means.nunique().min() == 1:
        return ""
    found = correlation(means["accuracy"].tolist(), means["transfer_rate"].tolist())
    clusters = count_clusters(means["accuracy"])
    if clusters < FEWEST_CLUSTERS:
        return f"r = {found.value:.2f}, not tested: {clusters} cluster{'s' if clusters > 1 else ''}"
    slope, intercept = np.polyfit(means["accuracy"], means["transfer_rate"], 1)
    ends = np.array([means["accuracy"].min(), means["accuracy"].max()])
    axes.plot(ends, intercept + slope * ends, "-", color="black", linewidth=0.8, label="least squares")
    return f"r = {found.value:.2f} (95 % interval {found.low:.2f} to {found.high:.2f})"
