"""The common style of all figures: fonts, colours that differ in lightness, line styles, hatches, markers, axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

# Dots per inch of bitmaps.
DPI = 200
# Panels stand side by side up to this width in inches; further panels start a new row.
WIDEST = 10.0
# A logarithmic axis with a smaller ratio of its ends also shows 2, 3 and 5 times the powers of ten.
FEW_DECADES = 50
# Okabe and Ito's colours, which differ in lightness too.
COLOURS = ("#000000", "#0072B2", "#E69F00", "#56B4E9", "#D55E00", "#009E73")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo", "---", "+++", "***")
STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (8, 3)))
MARKERS = ("o", "s", "^", "v", "X", "P", "*", "<", ">", "h", "d")
PUBLISHED: dict[str, Any] = {
    "marker": "D",
    "markerfacecolor": "white",
    "markersize": 5,
    "linestyle": "none",
    "zorder": 5,
}

matplotlib.rcParams.update(
    {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "hatch.linewidth": 0.6,
        "legend.handlelength": 3.0,
        "pdf.fonttype": 42,
        "svg.hashsalt": "robustfeatures",
        # Class names may contain "$" or "_" and are shown unchanged.
        "text.parse_math": False,
        "text.usetex": False,
    }
)


def distinct(values: pd.Series) -> list[Any]:
    """The different values of a column, in order of appearance."""
    return list(values.unique())


def seed_deviation(values: Sequence[float]) -> float:
    """The standard deviation over seeds (n - 1), 0 for fewer than two."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def make_panels(
    count: int, *, width: float, height: float, aside: float = 0.0, sharey: bool = True
) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels of this size in inches, plus `aside` inches of width."""
    rows = math.ceil(count / max(1, int(WIDEST / width)))
    columns = math.ceil(count / rows)
    figure = Figure(figsize=(width * columns + aside, height * rows), layout="constrained")
    places = list(figure.subplots(rows, columns, sharey=sharey, squeeze=False).flat)
    for unused in places[count:]:
        unused.remove()
    return figure, places[:count]


def leftmost(panels: Sequence[Axes]) -> list[Axes]:
    """The first panel of each row."""
    places = [(axes, axes.get_subplotspec()) for axes in panels]
    return [axes for axes, place in places if place is not None and place.is_first_col()]


def value_axis(axes: Axes, label: str, *, log: bool = False) -> None:
    """Label the vertical axis; an axis in percent spans 0 to 100."""
    if "(%)" in label:
        axes.set_ylim(0, 102)
    axes.set_ylabel(label)
    if log:
        log_axis(axes, "y")


def log_axis(axes: Axes, which: str) -> None:
    """A logarithmic axis with plain numbers, since figures show no mathematical text."""
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if which == "x" else axes.yaxis

    def between(value: float, _: int) -> str:
        low, high = axis.get_view_interval()
        leading = round(value / 10 ** math.floor(math.log10(value)))
        return f"{value:g}" if high < FEW_DECADES * low and leading in (2, 3, 5) else ""

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(FuncFormatter(between))


def mark_published(axes: Axes, x: Sequence[float], y: Sequence[float], colour: str = "black") -> None:
    """Published values as hollow diamonds, whole even where they lie on the frame."""
    # Without points the layout would place the marks at the origin of the figure.
    if len(y):
        axes.plot(x, y, color=colour, clip_on=False, **PUBLISHED)


def published_handle() -> Line2D:
    """The legend entry of published values."""
    return Line2D([], [], color="black", label="published", **PUBLISHED)


def label_horizontal(figure: Figure, panels: Sequence[Axes], label: str) -> None:
    """Label the horizontal axis, once for all panels."""
    if len(panels) == 1:
        panels[0].set_xlabel(label)
    else:
        figure.supxlabel(label, fontsize=9)


def legend_above(figure: Figure, handles: Sequence[Any]) -> None:
    """Draw one legend for all panels; its rows are no wider than the figure."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    fitting = int(figure.get_figwidth() / (0.075 * longest + 0.75))
    figure.legend(
        handles=list(handles), loc="outside upper center", ncols=max(1, min(len(handles), fitting)), frameon=False
    )
