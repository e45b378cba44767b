"""Scatter plots with a fitted line, its interval and the correlation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from robustfeatures.experiments.shared.intervals import CONFIDENCE
from robustfeatures.experiments.shared.plots.style import (
    COLOURS,
    MARKERS,
    distinct,
    label_horizontal,
    leftmost,
    legend_above,
    make_panels,
    mark_published,
    published_handle,
)
from robustfeatures.experiments.shared.summaries import correlation


def scatter(
    rows: pd.DataFrame,
    *,
    point: str,
    x: str,
    y: str,
    xlabel: str,
    ylabel: str,
    panel: str | None = None,
    panel_label: Callable[[Any], str] = str,
    published: pd.DataFrame | None = None,
) -> Figure:
    """One point per value of `point`, means of `x` and `y` over seeds with standard deviations as whiskers.

    Each panel shows the least-squares line through these points, the 95 % interval of the line, and Pearson's
    correlation with its 95 % interval. `published` (`results.comparable_rows`) is drawn as hollow diamonds.
    """
    panels, points = distinct(rows[panel]) if panel else [None], distinct(rows[point])
    named = len(points) <= len(MARKERS)
    figure, grid = make_panels(len(panels), width=4.0 if len(panels) == 1 else 3.6, height=3.4)
    for axes, name in zip(grid, panels, strict=True):
        part = rows if panel is None else rows[rows[panel] == name]
        found = part.groupby(point, sort=False)[[x, y]].agg(["mean", "std"]).reindex(points)
        for number, each in enumerate(points):
            at = found.loc[each]
            axes.errorbar(
                at[x, "mean"],
                at[y, "mean"],
                xerr=np.nan_to_num(at[x, "std"]),
                yerr=np.nan_to_num(at[y, "std"]),
                marker=MARKERS[number] if named else "o",
                markersize=5 if named else 2,
                color=COLOURS[number % len(COLOURS)] if named else "black",
                linestyle="none",
                elinewidth=0.7,
                label=str(each),
            )
        if published is not None:
            printed = published if panel is None else published[published[panel] == name]
            mark_published(axes, printed[x].to_list(), printed[y].to_list())
        title = [] if panel is None else [panel_label(name)]
        means = found.xs("mean", axis="columns", level=1).dropna()
        axes.set_title("\n".join([*title, *_fit(axes, means[x].to_numpy(), means[y].to_numpy())]), fontsize=9)
    label_horizontal(figure, grid, xlabel)
    for axes in leftmost(grid):
        axes.set_ylabel(ylabel)
    handles = grid[0].get_legend_handles_labels()[0] if named else []
    shown = [*handles, *([published_handle()] if published is not None else [])]
    if shown:
        legend_above(figure, shown)
    return figure


def _fit(axes: Axes, x: Any, y: Any) -> list[str]:
    """Draw the fitted line with the interval of its mean; return the text of r, or nothing if no line can be fitted."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return []
    # A slow import that few tables and figures need.
    from scipy import stats

    line = stats.linregress(x, y)
    along = np.linspace(x.min(), x.max(), 100)
    fitted = line.intercept + line.slope * along
    residual = np.sqrt(((y - line.intercept - line.slope * x) ** 2).sum() / (len(x) - 2))
    leverage = 1 / len(x) + (along - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(x) - 2) * residual * np.sqrt(leverage)
    axes.plot(along, fitted, color="black", lw=1)
    axes.fill_between(along, fitted - half, fitted + half, color="black", alpha=0.12, lw=0)
    found = correlation(x, y)
    return [f"r = {found.value:.2f} (95 % interval {found.low:.2f} to {found.high:.2f})"]
