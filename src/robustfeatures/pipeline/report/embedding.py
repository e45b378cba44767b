"""Images as part of a page, so that the page is one file."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A drawing has fewer colours than this, a figure with photographs has more.
MOST_COLOURS = 1 << 16
PALETTE = 256
# The longest side of a sample image, in pixels.
SAMPLE_SIDE = 96


@dataclass(frozen=True)
class Embedded:
    """An image as a data URI, with its width and height in pixels."""

    uri: str
    width: int
    height: int


def embed_figure(path: Path) -> Embedded:
    """A figure's bitmap. A drawing is reduced to 256 colours, which the eye does not see, at a third of the bytes."""
    with Image.open(path) as file:
        image = file.convert("RGB")
    if image.getcolors(MOST_COLOURS) is None:
        return _as_uri(path.read_bytes(), image)
    reduced = image.quantize(PALETTE, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    return _as_uri(_encode(reduced), image)


def embed_sample(pixels: NDArray[np.uint8]) -> Embedded:
    """An image of a data set, uint8 (C, H, W) with one channel or three."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    image.thumbnail((SAMPLE_SIDE, SAMPLE_SIDE))
    return _as_uri(_encode(image), image)


def _encode(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def _as_uri(content: bytes, image: Image.Image) -> Embedded:
    return Embedded(f"data:image/png;base64,{base64.b64encode(content).decode()}", *image.size)
