"""The figure of X4: means and their intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from robustfeatures.experiments.shared.intervals import confidence_interval
from robustfeatures.experiments.shared.plots.style import COLOURS


def plot_intervals(rows: pd.DataFrame, *, row: str, panel: str) -> Figure:
    """A panel per value of `panel` (a radius), a line per value of `row`: seeds, mean and 95 % interval, in percent."""
    names, panels = list(rows[row].unique())[::-1], sorted(rows[panel].unique())
    figure = Figure(figsize=(1.4 + 2.0 * len(panels), 0.6 + 0.28 * len(names)), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    for number, (axes, value) in enumerate(zip(grid[0], panels, strict=True)):
        for place, name in enumerate(names):
            seeds = rows[(rows[row] == name) & (rows[panel] == value)]["accuracy"].to_numpy()
            axes.plot(seeds, np.full(len(seeds), place), ".", color=COLOURS[1], markersize=3)
            if len(seeds):
                axes.plot(confidence_interval(seeds.tolist()), (place, place), "-", color=COLOURS[0], linewidth=1.2)
                axes.plot(seeds.mean(), place, "o", color=COLOURS[0], markersize=4)
        axes.set_title("clean" if value == 0 else f"L2 {value:g}", fontsize=8)
        axes.set_xlim(-2, 102)
        axes.set_xlabel("accuracy (%)")
        if not number:
            axes.set_yticks(range(len(names)), names, fontsize=8)
    return figure
