"""Grids of images: unchanged pixels, aligned columns, names above the images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from robustfeatures.errors import make_printable
from robustfeatures.experiments.shared.plots.style import DPI

# All positions are whole pixels of the bitmap, so all pixels of an image are equally wide.
CELL = 96
GAP = 14
# More characters of a name do not fit above an image.
LONGEST_LABEL = 12
LABEL_HEIGHT = 24
MARGIN = 12
POINTS = 6.0


@dataclass(frozen=True)
class ImageRow:
    """One row of a block: its title, images (n, C, H, W) in [0, 1] of one or three channels, and names above them."""

    title: str
    pictures: NDArray[np.float32]
    labels: Sequence[str] = ()


def image_grid(blocks: Mapping[str, Sequence[ImageRow]]) -> Figure:
    """Rows of images in named blocks with aligned columns; images are never interpolated.

    Images are enlarged by a whole factor. Images larger than half an inch keep their size.
    """
    rows = [row for block in blocks.values() for row in block]
    side = max(max(row.pictures.shape[2:]) for row in rows)
    factor = max(1, round(CELL / side))
    cell, columns = side * factor, max(len(row.pictures) for row in rows)
    left = MARGIN + _text_width(list(blocks), 8, bold=True) + _text_width([row.title for row in rows], 7)
    width = left + columns * (cell + GAP)
    heights = [sum(_row_height(row, cell) for row in block) + 2 * GAP for block in blocks.values()]
    height = sum(heights) + MARGIN
    canvas = np.ones((height, width, 3), dtype=np.float32)
    figure = Figure(figsize=(width / DPI, height / DPI))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    top = GAP
    for name, block in blocks.items():
        first = True
        for row in block:
            top += LABEL_HEIGHT if row.labels else 0
            middle = top + cell / 2
            if first:
                axes.text(MARGIN, middle, make_printable(name), fontsize=8, fontweight="bold", va="center")
            first = False
            axes.text(left - GAP, middle, row.title, fontsize=7, ha="right", va="center")
            for at, picture in enumerate(row.pictures):
                _paste(canvas, picture, factor, top, left + at * (cell + GAP))
            for at, label in enumerate(row.labels):
                place = left + at * (cell + GAP) + cell / 2
                axes.text(place, top - 4, _short(label), fontsize=POINTS, ha="center", va="bottom")
            top += cell + GAP
        top += 2 * GAP
    axes.imshow(canvas, interpolation="none", extent=(0, width, height, 0), aspect="auto")
    axes.set(xlim=(0, width), ylim=(height, 0))
    return figure


def _row_height(row: ImageRow, cell: int) -> int:
    return cell + GAP + (LABEL_HEIGHT if row.labels else 0)


def _text_width(texts: Sequence[str], points: float, *, bold: bool = False) -> int:
    """About the width in pixels of the longest of these texts."""
    longest = max((len(make_printable(text)) for text in texts), default=0)
    return GAP + round(longest * points * (0.68 if bold else 0.6) * DPI / 72)


def _paste(canvas: NDArray[np.float32], picture: NDArray[np.float32], factor: int, top: int, left: int) -> None:
    """Put one image (C, H, W) on the canvas, each of its pixels a square of `factor` pixels."""
    colours = np.broadcast_to(picture, (3, *picture.shape[1:])) if len(picture) == 1 else picture
    enlarged = colours.transpose(1, 2, 0).repeat(factor, axis=0).repeat(factor, axis=1)
    canvas[top : top + enlarged.shape[0], left : left + enlarged.shape[1]] = np.clip(enlarged, 0, 1)


def _short(label: str) -> str:
    name = make_printable(label)
    return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"
