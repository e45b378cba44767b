"""The shapes of figure that experiments share: readable in grey, with the spread over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from robustfeatures.errors import printable

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset

# Okabe and Ito's colours, which differ in lightness too.
COLOURS = ("#000000", "#0072B2", "#E69F00", "#56B4E9", "#D55E00", "#009E73")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo")
# Characters above a sample, which is half an inch wide.
LONGEST_LABEL = 16
STYLES = ("-", "--", "-.", ":")

matplotlib.rcParams.update(
    {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "robustfeatures",
        # Names of classes are shown as they are, whatever they hold.
        "text.parse_math": False,
        "text.usetex": False,
    }
)


def grouped_bars(rows: pd.DataFrame, *, group: str, bar: str, bar_label: Callable[[Any], str], xlabel: str) -> Figure:
    """Accuracy (percent) as one group of bars per value of `group`, one bar per value of `bar`."""
    groups, bars = list(rows[group].unique()), list(rows[bar].unique())
    width = 0.8 / len(bars)
    figure = Figure(figsize=(max(4.0, 1.2 * len(groups) + 1), 3.2), layout="constrained")
    axes = figure.subplots()
    for number, value in enumerate(bars):
        seeds = [rows[(rows[group] == name) & (rows[bar] == value)]["accuracy"].to_numpy() for name in groups]
        places = np.arange(len(groups)) + (number - (len(bars) - 1) / 2) * width
        axes.bar(
            places,
            [values.mean() if len(values) else np.nan for values in seeds],
            width,
            yerr=[values.std(ddof=1) if len(values) > 1 else 0.0 for values in seeds],
            color=COLOURS[1 + number % (len(COLOURS) - 1)],
            edgecolor="black",
            linewidth=0.6,
            hatch=HATCHES[number % len(HATCHES)],
            error_kw={"elinewidth": 0.8, "capsize": 2},
            label=bar_label(value),
        )
        for place, values in zip(places, seeds, strict=True):
            axes.plot([place] * len(values), values, ".", color="black", markersize=2.5)
    axes.set_xticks(np.arange(len(groups)), groups)
    axes.set_xlabel(xlabel)
    _percent_axis(axes)
    if len(bars) > 1:
        figure.legend(loc="outside upper center", ncols=len(bars), frameon=False)
    return figure


def curves(rows: pd.DataFrame, *, panel: str, line: str, x: str, xlabel: str) -> Figure:
    """Accuracy (percent) against `x`: a panel per value of `panel`, a line with a seed band per value of `line`."""
    panels, lines = list(rows[panel].unique()), list(rows[line].unique())
    figure = Figure(figsize=(4.0 * len(panels), 3.2), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    for axes, name in zip(grid[0], panels, strict=True):
        for number, value in enumerate(lines):
            part = rows[(rows[panel] == name) & (rows[line] == value)].groupby(x)["accuracy"].agg(["mean", "std"])
            spread = part["std"].fillna(0.0)
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(part.index, part["mean"], STYLES[number % len(STYLES)], color=colour, label=value)
            axes.fill_between(part.index, part["mean"] - spread, part["mean"] + spread, color=colour, alpha=0.2, lw=0)
        axes.set_title(name)
        axes.set_xlabel(xlabel)
        _percent_axis(axes)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(lines), frameon=False)
    return figure


def _percent_axis(axes: Axes) -> None:
    axes.set_ylim(0, 102)
    axes.set_ylabel("accuracy (%)")
    axes.label_outer()


def sample_blocks(
    original: ImageDataset, derived: Mapping[str, ImageDataset], *, images: int, magnification: float
) -> Figure:
    """Per derived set rows of images: original, derived, and the change from where it started, drawn round grey."""
    places = _one_of_each_class(original.labels, images)
    at = {int(index): place for place, index in enumerate(original.provenance["source_index"])}
    blocks = {name: _block(original, at, places, dataset, magnification) for name, dataset in derived.items()}
    heights = [len(rows) + 0.5 for rows in blocks.values()]
    figure = Figure(figsize=(0.55 * images + 1.6, 0.6 * sum(heights)), layout="constrained")
    grid = figure.subfigures(len(blocks), 1, height_ratios=heights, squeeze=False)
    for block, (name, rows) in zip(grid[:, 0], blocks.items(), strict=True):
        block.suptitle(name, fontsize=9, fontweight="bold")
        for axes_row, row in zip(block.subplots(len(rows), len(places), squeeze=False), rows, strict=True):
            for axes, picture, label in zip(axes_row, row.pictures, row.labels, strict=True):
                _show(axes, picture, label)
            axes_row[0].set_ylabel(row.title, rotation=0, ha="right", va="center", fontsize=7)
    return figure


@dataclass(frozen=True)
class _Row:
    title: str
    pictures: NDArray[np.float32]
    labels: Sequence[str]


def _block(
    original: ImageDataset,
    at: Mapping[int, int],
    places: NDArray[np.int64],
    dataset: ImageDataset,
    magnification: float,
) -> list[_Row]:
    """Original, derived and, unless it started from noise, which no data set holds, the change."""
    names = original.class_names
    images, found = original.float_images(places), dataset.float_images(places)
    rows = [
        _Row("original", images, [names[label] for label in dataset.provenance["source_label"][places]]),
        _Row("derived", found, [names[label] for label in dataset.labels[places]]),
    ]
    attacked = (dataset.provenance["target"] >= 0).all()
    starts = dataset.provenance["start_index"]
    if not attacked and (starts < 0).all():
        return rows
    begun = places if attacked else np.array([at[int(start)] for start in starts[places]])
    # An inversion replaces the image it starts from; only an attack needs a magnifying glass.
    factor = magnification if attacked else 1.0
    changes = np.clip(0.5 + factor * (found - original.float_images(begun)), 0, 1)
    return [*rows, _Row(f"change x{factor:g}", changes, [""] * len(places))]


def _one_of_each_class(labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The first image of each class, then the second of each, until there are `count`; sorted by class."""
    rank = np.zeros(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        chosen = labels == label
        rank[chosen] = np.arange(chosen.sum())
    return np.lexsort((labels, rank))[:count]


def _show(axes: Axes, picture: NDArray[Any], label: str) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    image = picture[0] if len(picture) == 1 else picture.transpose(1, 2, 0)
    axes.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.spines[:].set_visible(False)
    name = printable(label)
    axes.set_title(name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…", fontsize=6, pad=1)
