"""What is wrong with the layout of a figure: cut or overlapping text, legends over data, series without a label."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure, FigureBase
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from numpy.typing import NDArray

from robustfeatures.experiments.shared.plots.style import WIDEST

# Points of the smallest text that is read without effort.
SMALLEST = 6
# The largest share of the figure's height that the legends above it may take.
TALLEST_LEGEND = 0.3
# Pixels by which boxes may touch: boxes are a little larger than the ink in them.
SLACK = 1.0

Corners = NDArray[np.float64]


def find_faults(figure: Figure) -> list[str]:
    """Draw the figure; one line per fault of its layout."""
    texts = _draw(figure)
    return [
        *_find_size_faults(figure, texts),
        *_find_cut_texts(figure, texts),
        *_find_overlapping_texts(texts),
        *_find_covering_legends(figure),
        *_find_unlabelled_series(figure),
    ]


def _draw(figure: Figure) -> list[Text]:
    """Draw the figure and return the texts that are in the picture."""
    drawn: dict[int, Text] = {}
    draw = Text.draw

    def record(text: Text, renderer: Any) -> None:
        if text.get_visible() and text.get_text().strip():
            drawn[id(text)] = text
        draw(text, renderer)

    with mock.patch.object(Text, "draw", record):
        FigureCanvasAgg(figure).draw()
    return list(drawn.values())


def _find_size_faults(figure: Figure, texts: list[Text]) -> Iterator[str]:
    if figure.get_figwidth() > WIDEST + 1e-6:
        yield f"the figure is {figure.get_figwidth():.1f} inches wide, wider than the page"
    for legend in figure.legends:
        share = legend.get_window_extent().height / figure.bbox.height
        if share > TALLEST_LEGEND:
            yield f"the legend takes {100 * share:.0f} % of the height"
    yield from (f"small text: {text.get_text()!r}" for text in texts if text.get_fontsize() < SMALLEST)


def _corners(text: Text) -> Corners:
    """The corners (4, 2) of the text's box in pixels; the box of a slanted text is slanted."""
    box, angle = text.get_window_extent(), text.get_rotation() % 180
    if angle % 90 == 0:
        return np.array([(box.x0, box.y0), (box.x1, box.y0), (box.x1, box.y1), (box.x0, box.y1)])
    text.set_rotation(0)
    flat = text.get_window_extent()
    text.set_rotation(angle)
    half = np.array([flat.width, flat.height]) / 2
    turn = np.deg2rad(angle)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    signs = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    return np.array([(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2]) + (signs * half) @ rotation.T


def _overlap(first: Corners, second: Corners) -> bool:
    """Whether two convex shapes share more than their edges: no line parallel to an edge separates them."""
    for corners in (first, second):
        for edge in np.roll(corners, -1, axis=0) - corners:
            normal = np.array([-edge[1], edge[0]]) / max(float(np.hypot(*edge)), 1e-9)
            ends = [(float((shape @ normal).min()), float((shape @ normal).max())) for shape in (first, second)]
            if min(ends[0][1], ends[1][1]) - max(ends[0][0], ends[1][0]) <= SLACK:
                return False
    return True


def _find_cut_texts(figure: Figure, texts: list[Text]) -> Iterator[str]:
    frame = figure.bbox
    for text in texts:
        corners = _corners(text)
        low, high = corners.min(axis=0), corners.max(axis=0)
        if (low < (frame.x0 - SLACK, frame.y0 - SLACK)).any() or (high > (frame.x1 + SLACK, frame.y1 + SLACK)).any():
            yield f"cut: {text.get_text()!r}"


def _find_overlapping_texts(texts: list[Text]) -> Iterator[str]:
    shapes = [(text, _corners(text)) for text in texts]
    boxes = np.array([[*shape.min(axis=0), *shape.max(axis=0)] for _, shape in shapes])
    for (first, (text, shape)), (second, (other, its)) in itertools.combinations(enumerate(shapes), 2):
        apart = (boxes[first, :2] > boxes[second, 2:]).any() or (boxes[second, :2] > boxes[first, 2:]).any()
        if not apart and _overlap(shape, its):
            yield f"overlap: {text.get_text()!r} and {other.get_text()!r}"


def _legends(figure: FigureBase) -> Iterator[tuple[Legend, Axes | None]]:
    """Every legend, with its axes or None for one of the whole figure."""
    yield from ((legend, None) for legend in figure.legends)
    for part in figure.subfigs:
        yield from _legends(part)
    for axes in figure.axes:
        legend = axes.get_legend()
        # The axes of a part are those of the figure too.
        if legend is not None and axes.figure is figure:
            yield legend, axes


def _in_pixels(axes: Axes) -> Iterator[Corners]:
    """The points (N, 2) in pixels of everything that shows data in the axes, with the points of lines in between."""
    for line in axes.lines:
        path = line.get_path().interpolated(20) if line.get_linestyle() != "None" else line.get_path()
        yield line.get_transform().transform(path.vertices)
    for patch in axes.patches:
        yield patch.get_transform().transform(patch.get_path().interpolated(20).vertices)
    for collection in axes.collections:
        for path in collection.get_paths():
            if len(path.vertices) > 1:
                yield collection.get_transform().transform(path.interpolated(5).vertices)
        if len(offsets := np.asarray(collection.get_offsets())) and offsets.any():
            yield collection.get_offset_transform().transform(offsets)
    for image in axes.images:
        box = image.get_window_extent()
        across, up = np.meshgrid(np.linspace(box.x0, box.x1, 50), np.linspace(box.y0, box.y1, 50))
        yield np.stack([across.ravel(), up.ravel()], axis=1)


def _find_covering_legends(figure: Figure) -> Iterator[str]:
    for legend, _ in _legends(figure):
        box = legend.get_window_extent()
        words = [text.get_text() for text in legend.get_texts()]
        for axes in figure.axes:
            frame = axes.bbox
            for points in _in_pixels(axes):
                # Data beyond the frame are not drawn.
                seen = points[
                    (points >= (frame.x0, frame.y0)).all(axis=1) & (points <= (frame.x1, frame.y1)).all(axis=1)
                ]
                inside = (seen > (box.x0, box.y0)).all(axis=1) & (seen < (box.x1, box.y1)).all(axis=1)
                if inside.any():
                    yield f"the legend {words} covers data"
                    break


def _looks_of(artist: Any) -> set[str]:
    """The colours by which a reader finds the artist in a legend."""
    if isinstance(artist, Line2D):
        drawn = artist.get_linestyle() != "None" or artist.get_marker() not in ("None", None, "", " ")
        return {to_hex(artist.get_color())} if drawn else set()
    if isinstance(artist, Collection):
        colours = [*artist.get_facecolor(), *artist.get_edgecolor()]
        return {to_hex(colour) for colour in colours if colour[3] > 0}
    return {to_hex(artist.get_facecolor())}


def _is_seed(line: Line2D) -> bool:
    """Small black dots on bars, which every caption explains."""
    return line.get_marker() == "." and line.get_markersize() <= 3


def _find_unlabelled_series(figure: Figure) -> Iterator[str]:
    """Lines and bars whose colour no legend explains, where a figure has more than one series."""
    explained = {
        look for legend, _ in _legends(figure) for handle in legend.legend_handles for look in _looks_of(handle)
    }
    series: dict[str, list[str]] = {}
    for axes in figure.axes:
        caps = _caps_of_whiskers(axes)
        for line in axes.lines:
            if len(line.get_xdata()) and not _is_seed(line) and line not in caps:
                for look in _looks_of(line):
                    series.setdefault(look, []).append(axes.get_title() or axes.get_ylabel())
        for container in axes.containers:
            bars = [patch for patch in container if isinstance(patch, Rectangle)]
            for look in {look for patch in bars for look in _looks_of(patch)}:
                series.setdefault(look, []).append(axes.get_title() or axes.get_ylabel())
    if len(series) > 1:
        yield from (
            f"no label: the series of colour {look} in {sorted(set(places))}"
            for look, places in series.items()
            if look not in explained
        )


def _caps_of_whiskers(axes: Axes) -> list[Line2D]:
    """The caps of whiskers, which belong to their bar or point."""
    return [
        cap
        for container in axes.containers
        for bars in (getattr(container, "errorbar", None), container)
        if bars is not None and hasattr(bars, "has_yerr")
        for cap in bars[1]
    ]
