"""Any folder of images, `<path>/<class>/<files>` or `<path>/<split>/<class>/<files>`; images are decoded on access."""

from __future__ import annotations

import hashlib
import io
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from robustfeatures.data.listing import Listing, list_images
from robustfeatures.data.operations import crop_square
from robustfeatures.data.own_files import check_digest, combine_digests, require_path
from robustfeatures.data.raw import RawData
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.data.settings import Data

# Pillow goes by the content of a file, not by its name, and runs other programs for some formats, such as EPS.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")
GREY = frozenset({"1", "L"})
COLOUR = frozenset({"RGB", "P", "CMYK", "YCbCr"})
# Conversion to RGB drops transparency, so only sources that are known to have such images accept these modes.
TRANSPARENT = frozenset({"RGBA", "LA", "PA"})
# A PNG without an alpha channel may still mark colours as transparent.
WITH_TRANSPARENT_COLOURS = {"1": "LA", "L": "LA", "P": "PA", "RGB": "RGBA"}
# Formats whose files may have several images. JPEG is not among them: a telephone's JPEG may have other versions of the
# same photograph.
MULTI_IMAGE_FORMATS = frozenset({"PNG", "TIFF", "WEBP"})
# How to turn a photograph upright, by the orientation in its EXIF data. The last four lie on their side.
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# At most the processors that this job may use; on a cluster these are fewer than the machine has.
THREADS = min(16, len(os.sched_getaffinity(0)))


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """The folder's splits (`val` and `valid` are "validation") or its pool "all"; uint8, sorted by class, then by name.

    All images must be grey (C = 1), or all colour (C = 3), with 8 bits a channel; without `size`, all of one size.

    Raises:
        UserError: the folder has a wrong layout or another digest; a class folder is missing or empty; a link is
            broken; an image is unreadable or its file has several images (unless `skip_unreadable`); an image is grey
            among colour images, transparent, deeper than 8 bits, or of another size.
    """
    return read_images(parameters, *list_images(parameters))


def compute_digest(parameters: Data) -> str:
    """The SHA-256 over the sorted lines `<relative path> <SHA-256 of the file>` of the folder's images."""
    return digest_images(parameters, list_images(parameters)[0])


@dataclass(frozen=True)
class FileFacts:
    """Facts of one file: its digest and, if it was decoded, mode and size, or the problem."""

    sha256: str
    mode: str = ""
    width: int = 0
    height: int = 0
    problem: str | None = None


def _hash(path: Path) -> FileFacts:
    """The digest alone, without decoding."""
    return FileFacts(hashlib.sha256(path.read_bytes()).hexdigest())


def _inspect(path: Path, *, decode: bool = True, upright: bool = True) -> FileFacts:
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            # Pillow reduces 16 bits a channel to 8 without a warning; only the raw mode of a tile shows it.
            deep = any(";16" in str(tile) for tile in image.tile)
            count = getattr(image, "n_frames", 1) if image.format in MULTI_IMAGE_FORMATS else 1
            if count > 1:
                return FileFacts(sha256, problem=f"holds {count} images")
            if decode:
                image.load()
            lies = upright and _find_orientation(image) >= 5
            width, height = image.size[::-1] if lies else image.size
            mode = WITH_TRANSPARENT_COLOURS.get(image.mode, image.mode) if "transparency" in image.info else image.mode
            return FileFacts(sha256, f"{mode} with 16 bits" if deep else mode, width, height)
    except MemoryError:
        raise
    except UnidentifiedImageError:
        # Pillow's own message has a memory address.
        return FileFacts(sha256, problem=f"no image that Pillow reads as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    except Exception as error:  # each decoder has exceptions of its own for damaged files
        return FileFacts(sha256, problem=str(error) or type(error).__name__)


def _find_orientation(image: Image.Image) -> int:
    """The orientation in the EXIF data of an image, 1 to 8; 1 if there is none."""
    # Pillow turns TIFF itself. In a PNG without the data it would look further, and decode the image.
    if image.format == "TIFF" or (image.format == "PNG" and "exif" not in image.info):
        return 1
    try:
        found = image.getexif().get(ExifTags.Base.Orientation)
    # Cameras write all kinds of data.
    except Exception:
        return 1
    return found if found in TURNS else 1


def _inspect_all(root: Path, files: Sequence[str], inspect: Callable[[Path], FileFacts]) -> list[FileFacts]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda file: inspect(root / file), files))


def inspect_headers(root: Path, files: Sequence[str]) -> dict[str, FileFacts]:
    """The facts of each file below `root`, without decoding: a damaged file may have no `problem`."""
    return dict(zip(files, _inspect_all(root, files, partial(_inspect, decode=False)), strict=True))


def digest_images(parameters: Data, listings: Mapping[str, Listing]) -> str:
    """The digest of all files of the listings, without decoding."""
    root = require_path(parameters)
    return combine_digests(
        {
            file: facts.sha256
            for listing in listings.values()
            for file, facts in zip(listing.files, _inspect_all(root, listing.files, _hash), strict=True)
        }
    )


def read_images(
    parameters: Data, listings: Mapping[str, Listing], class_names: tuple[str, ...], *, convert: bool = False
) -> dict[str, RawData]:
    """Each listing's images as uint8 (N, C, H, W). All files are checked at once; images are decoded on access.

    Photographs are turned upright by their EXIF data. With `convert`, for published sets, they are not, and all images
    become RGB.

    Raises:
        UserError: as `load` does.
    """
    root = require_path(parameters)
    inspect = partial(_inspect, upright=not convert)
    inspected = {split: _inspect_all(root, listing.files, inspect) for split, listing in listings.items()}
    facts = {
        file: fact
        for split, listing in listings.items()
        for file, fact in zip(listing.files, inspected[split], strict=True)
    }
    check_digest(parameters, combine_digests({file: fact.sha256 for file, fact in facts.items()}))
    _check_readable(facts, parameters)
    readable = {file: fact for file, fact in facts.items() if fact.problem is None}
    mode = find_mode(readable, convert=convert)
    height, width = _common_size(readable, parameters.size)
    result: dict[str, RawData] = {}
    for split, listing in listings.items():
        rows = [row for row, fact in enumerate(inspected[split]) if fact.problem is None]
        files = tuple(listing.files[row] for row in rows)
        images = ImageFiles(root, files, mode, height, width, parameters.size, upright=not convert)
        result[split] = RawData(images, listing.labels[rows], class_names, listing.names(rows))
    return result


def _check_readable(facts: Mapping[str, FileFacts], parameters: Data) -> None:
    broken = [file for file, fact in facts.items() if fact.problem is not None]
    if not broken:
        return
    if not parameters.skip_unreadable or len(broken) == len(facts):
        raise UserError(
            f"data.path: {len(broken)} of {len(facts)} images cannot be read, first {broken[0]} "
            f"({facts[broken[0]].problem}); mend them, or set data.skip_unreadable"
        )
    logging.getLogger(__name__).warning(
        "%s: %d of %d images cannot be read and are skipped: %s",
        parameters.path,
        len(broken),
        len(facts),
        ", ".join(broken),
    )


def find_mode(facts: Mapping[str, FileFacts], *, convert: bool = False) -> str:
    """The mode of all images: "L", or "RGB" for colour and with `convert`.

    Raises:
        UserError: an image is grey among colour images, transparent (unless `convert`), or deeper than 8 bits.
    """
    mode = "RGB" if convert else _common_mode(facts)
    known = GREY | COLOUR | TRANSPARENT if convert else GREY | COLOUR
    for file, fact in facts.items():
        if fact.mode not in known:
            raise UserError(
                f"data.path: {file}: the mode is {fact.mode}; save it with 8 bits a channel, grey or RGB, without alpha"
            )
    return mode


def _common_mode(facts: Mapping[str, FileFacts]) -> str:
    grey = next((file for file, fact in facts.items() if fact.mode in GREY), None)
    colour = next((file for file, fact in facts.items() if fact.mode in COLOUR), None)
    if grey is not None and colour is not None:
        raise UserError(
            f"data.path: {grey}: grey image where colour is expected, as in {colour}; save all as RGB, or all as grey"
        )
    return "RGB" if grey is None else "L"


def _common_size(facts: Mapping[str, FileFacts], size: int | None) -> tuple[int, int]:
    """(height, width) of every image."""
    if size is not None:
        return size, size
    first, expected = next(iter(facts.items()))
    for file, fact in facts.items():
        if (fact.width, fact.height) != (expected.width, expected.height):
            raise UserError(
                f"data.path: {file} has {fact.width}x{fact.height} pixels, {first} has "
                f"{expected.width}x{expected.height}; set data.size to make all square"
            )
    return expected.height, expected.width


@dataclass(frozen=True)
class ImageFiles:
    """Images (N, C, H, W), uint8, decoded from their files on access.

    mode: "L" (C = 1) or "RGB" (C = 3).
    size: the side of the square that each image is resized and cropped to, or None.
    upright: whether photographs are turned by their EXIF data.
    """

    root: Path
    files: tuple[str, ...]
    mode: str
    height: int
    width: int
    size: int | None
    upright: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.files), 1 if self.mode == "L" else 3, self.height, self.width)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        images = np.empty((len(rows), *self.shape[1:]), np.uint8)
        with ThreadPoolExecutor(THREADS) as pool:
            for place, image in zip(images, self._decode_all(pool, rows), strict=True):
                place[...] = image
        return images

    def _decode_all(self, pool: ThreadPoolExecutor, rows: NDArray[np.int64]) -> Iterator[NDArray[np.uint8]]:
        decode = partial(_decode, mode=self.mode, size=self.size, upright=self.upright)
        return pool.map(decode, [self.root / self.files[row] for row in rows])


def _decode(path: Path, mode: str, size: int | None, *, upright: bool) -> NDArray[np.uint8]:
    """One image, (C, H, W)."""
    with Image.open(path, formats=FORMATS) as opened:
        image = opened.convert(mode)
        orientation = _find_orientation(opened) if upright else 1
    if orientation in TURNS:
        image = image.transpose(TURNS[orientation])
    pixels = np.asarray(image if size is None else crop_square(image, size))
    return pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)
