"""The common style of all figures: fonts, colours that differ in lightness, line styles, hatches, markers, axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter, NullLocator
from matplotlib.transforms import Transform
from numpy.typing import ArrayLike, NDArray

from robustfeatures.experiments.shared.units import SHARES

# Dots per inch of bitmaps.
DPI = 200
# The width of the report page in inches. No figure is wider; panels that do not fit side by side start a new row.
WIDEST = 10.0
# The longest line of a vertical axis's label in inches.
LONGEST_LABEL = 2.3
# Points of the text, of the titles of panels, and of what stands inside a panel.
TEXT, TITLE, SMALL = 9, 10, 8
# Points in percent that an axis of accuracies spans.
LEAST_SPAN = 20.0
# Inches between the labels of two ticks.
APART = 0.08
# A logarithmic axis with a smaller ratio of its ends also shows 2, 3 and 5 times the powers of ten.
FEW_DECADES = 50
# Okabe and Ito's colours, which differ in lightness too.
COLOURS = ("#000000", "#0072B2", "#E69F00", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#F0E442")
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
        "font.size": TEXT,
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
    """The standard deviation over seeds (n - 1); NaN, which draws no whisker, for fewer than two."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


@cache
def text_width(text: str, points: float = TEXT) -> float:
    """The width in inches of the longest line of the text."""
    lines = [line for line in text.split("\n") if line.strip()]
    paths = [TextPath((0, 0), line, size=points) for line in lines]
    # The outermost points of letters lie on their outlines. `get_extents`, which also looks between them, is slow.
    return max((path.vertices[:, 0].max(initial=0.0) / 72 for path in paths), default=0.0)


def wrap(text: str, inches: float, points: float = TEXT) -> str:
    """The text with its words in lines of at most this width; a longer word has a line of its own."""
    wrapped: list[str] = []
    for given in text.split("\n"):
        line = ""
        for word in given.split(" "):
            longer = f"{line} {word}" if line else word
            if line and text_width(longer, points) > inches:
                wrapped.append(line)
                line = word
            else:
                line = longer
        wrapped.append(line)
    return "\n".join(wrapped)


def make_panels(
    count: int, *, width: float, height: float, aside: float = 0.0, sharey: bool = True
) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels of this size in inches, plus `aside` inches of width, at most `WIDEST` wide."""
    rows = math.ceil(count / max(1, int((WIDEST - aside) / width + 1e-6)))
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


def band_ends(middle: ArrayLike, deviation: ArrayLike, label: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ends of bands of one deviation; if the axis is labelled in percent, they stay within 0 to 100."""
    middle, deviation = np.asarray(middle, dtype=float), np.asarray(deviation, dtype=float)
    least, most = SHARES if "(%)" in label else (-math.inf, math.inf)
    low = np.maximum(middle - deviation, np.minimum(middle, least))
    return low, np.minimum(middle + deviation, np.maximum(middle, most))


def value_axis(axes: Axes, label: str) -> None:
    """Label the vertical axis; an axis in percent spans 0 to 100."""
    if "(%)" in label:
        axes.set_ylim(0, 102)
    axes.set_ylabel(wrap(label, LONGEST_LABEL))


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


def ticks_at(axes: Axes, places: Iterable[float], inches: float) -> None:
    """Ticks of a horizontal axis of so many inches at these values. Labels that would touch another one are left out.

    The labels of the ends come first, then those of the larger values. Call it when data and scale of the axis are set.
    """
    transform = axes.xaxis.get_transform()
    low, high = transform.transform(np.array(axes.get_xlim()))
    ordered = sorted(places)
    middles = (transform.transform(np.array(ordered, dtype=float)) - low) / (high - low) * inches
    labels = [""] * len(ordered)
    taken: list[tuple[float, float]] = []
    for at in dict.fromkeys([len(ordered) - 1, 0, *reversed(range(len(ordered)))]):
        text, middle = f"{ordered[at]:g}", float(middles[at])
        half = text_width(text) / 2
        if all(abs(middle - other) >= half + its_half + APART for other, its_half in taken):
            labels[at] = text
            taken.append((middle, half))
    axes.set_xticks(ordered, labels)
    axes.xaxis.set_minor_locator(NullLocator())


def contrasting(colour: Iterable[float]) -> str:
    """Black or white: the one that has the higher contrast with a colour (red, green, blue, opacity) on white."""
    *channels, opacity = colour
    shown = np.array(channels) * opacity + 1 - opacity
    # The relative luminance of the web content accessibility guidelines, which define contrast by it.
    linear = np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ np.array([0.2126, 0.7152, 0.0722]))
    return "black" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "white"


def mark_published(
    axes: Axes, x: Sequence[float], y: Sequence[float], colour: str = "black", *, transform: Transform | None = None
) -> None:
    """Published values as hollow diamonds, whole even where they lie on the frame. `transform` is that of x and y."""
    # Without points the layout would place the marks at the origin of the figure.
    if len(y):
        axes.plot(x, y, color=colour, clip_on=False, transform=transform or axes.transData, **PUBLISHED)


def published_handle() -> Line2D:
    """The legend entry of published values."""
    return Line2D([], [], color="black", label="published", **PUBLISHED)


def accuracy_limits(values: pd.Series) -> tuple[float, float]:
    """The ends of an axis for these percentages: multiples of ten, at least `LEAST_SPAN` apart, from 0 to 100.

    An axis that spans less would show a difference of a fraction of a point as if it were large.
    """
    low, high = 10 * math.floor(values.min() / 10), 10 * math.ceil(values.max() / 10)
    high = min(100.0, max(high, low + LEAST_SPAN))
    return max(0.0, min(low, high - LEAST_SPAN)), high


def label_horizontal(figure: Figure | SubFigure, panels: Sequence[Axes], label: str) -> None:
    """Label the horizontal axis, once for all panels; a label wider than the figure has several lines."""
    shown = wrap(label, 0.9 * figure.bbox.width / figure.dpi - 0.6)
    if len(panels) == 1:
        panels[0].set_xlabel(shown)
    else:
        figure.supxlabel(shown, fontsize=TEXT)


def legend_instead(axes: Axes, handles: Sequence[Any]) -> None:
    """Use axes without data as the place of a legend: above other axes with lines of their own."""
    axes.set_axis_off()
    axes.legend(handles=list(handles), loc="lower center", frameon=False, fontsize=SMALL, handlelength=2.5)


def legend_above(figure: Figure | SubFigure, handles: Sequence[Any]) -> None:
    """Draw one legend for all panels; its rows are no wider than the figure.

    A figure grows with the rows of its legend beyond the first, so its panels keep their size.
    """
    width = figure.bbox.width / figure.dpi - 0.2
    # Lengths of a handle, of the space after it and between two columns, in inches.
    handle, between = (3.0 + 0.8) * TEXT / 72, 2.0 * TEXT / 72
    for each in handles:
        each.set_label(wrap(str(each.get_label()), width - handle))
    widths = [handle + text_width(str(each.get_label())) for each in handles]

    def total(columns: int) -> float:
        parts = [part for part in np.array_split(widths, columns) if len(part)]
        return sum(float(part.max()) for part in parts) + between * (len(parts) - 1)

    fitting = [columns for columns in range(1, len(widths) + 1) if total(columns) <= width]
    columns = max(fitting, default=1)
    if isinstance(figure, Figure):
        rows = math.ceil(len(widths) / columns)
        figure.set_figheight(figure.get_figheight() + (rows - 1) * 1.5 * TEXT / 72)
    figure.legend(handles=list(handles), loc="outside upper center", ncols=columns, frameon=False, fontsize=TEXT)
