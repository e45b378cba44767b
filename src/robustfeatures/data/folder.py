"""Any folder of images: `<path>/<class>/<files>` or `<path>/<split>/<class>/<files>`, read when they are asked for."""

from __future__ import annotations

import hashlib
import io
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from robustfeatures.data.operations import crop_square
from robustfeatures.data.raw import RawData
from robustfeatures.data.registry import find_source
from robustfeatures.data.settings import POOL
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.data.settings import Data

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
# Pillow opens by content, not by name, and hands some formats to other programs: EPS to Ghostscript.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")
SPLITS = {"train": "train", "val": "validation", "valid": "validation", "validation": "validation", "test": "test"}
GREY = frozenset({"1", "L"})
COLOUR = frozenset({"RGB", "P", "CMYK", "YCbCr"})
# Conversion drops the transparency, so only sources that are known to hold such images accept it.
TRANSPARENT = frozenset({"RGBA", "LA", "PA"})
# PNG can say which colours are transparent without a channel of its own for that.
WITH_TRANSPARENT_COLOURS = {"1": "LA", "L": "LA", "P": "PA", "RGB": "RGBA"}
# A JPEG file may hold several too, but they are a telephone's other versions of the one photograph.
OF_SEVERAL_IMAGES = frozenset({"PNG", "TIFF", "WEBP"})
# The processors that this job may use, which on a cluster are fewer than there are.
THREADS = min(16, len(os.sched_getaffinity(0)))


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """The folder's splits (`val` and `valid` are "validation") or its pool "all"; uint8, sorted by class, then by name.

    All images are grey (C = 1) or all have colour (C = 3), with 8 bits a channel. Without `size` all have one size.

    Raises:
        UserError: the folder has another layout or another digest, a class folder is missing or empty, a link leads
            nowhere, an image is unreadable or one of several in its file (unless `skip_unreadable`), grey among
            colour, transparent, deeper than 8 bits, or of another size.
    """
    return read_images(parameters, *list_images(parameters))


def compute_digest(parameters: Data) -> str:
    """The SHA-256 over the sorted lines `<relative path> <SHA-256 of the file>` of the folder's images."""
    return digest_images(parameters, list_images(parameters)[0])


@dataclass(frozen=True)
class Listing:
    """The image files of one split, sorted by class, then by name.

    files: paths with forward slashes, relative to the source's folder. labels: int64 (N,).
    split_folder: the first part of each path, which is no part of an image's name; "" for a pool.
    """

    files: tuple[str, ...]
    labels: NDArray[np.int64]
    split_folder: str

    def names(self, rows: Iterable[int]) -> tuple[str, ...]:
        """The paths below the split folder."""
        start = len(self.split_folder) + 1 if self.split_folder else 0
        return tuple(self.files[row][start:] for row in rows)


def require_path(parameters: Data) -> Path:
    """`data.path`, which with `data.sha256` the sources of the user's own files need.

    Raises:
        UserError: the recipe has no path, or there is nothing at it.
    """
    if parameters.path is None:
        raise UserError(f"data.path: the source {parameters.source!r} needs a path; give that of your file or folder")
    path = Path(parameters.path)
    if not path.exists():
        raise UserError(f"data.path: {path} does not exist")
    return path


def check_digest(parameters: Data, found: str) -> None:
    """Compare what was found with `data.sha256`, which only published sets may leave out.

    Raises:
        UserError: they differ, or the recipe has none.
    """
    if parameters.sha256 is None and find_source(parameters.source).user_folder is not None:
        return
    if parameters.sha256 is None:
        raise UserError(f"data.sha256: {parameters.path} has the SHA-256 {found}; give it in the recipe")
    if found != parameters.sha256:
        raise UserError(
            f"data.sha256: {parameters.path} has the SHA-256 {found}, not {parameters.sha256}; "
            "is it truncated, or was it changed?"
        )


def combine_digests(digests: Mapping[str, str]) -> str:
    """One SHA-256 for several files, from the SHA-256 of each by its relative path."""
    lines = sorted(f"{name} {digest}\n" for name, digest in digests.items())
    # Names on disk need not be UTF-8.
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def list_folders(folder: Path) -> list[str]:
    """The names of the visible folders in a folder, sorted.

    Raises:
        UserError: it is not a folder, or holds a link to nothing.
    """
    if not folder.is_dir():
        raise UserError(f"data.path: {folder} is not a folder")
    with os.scandir(folder) as entries:
        visible = [_existing(entry) for entry in entries if not entry.name.startswith(".")]
        return sorted(entry.name for entry in visible if entry.is_dir())


def list_split(
    root: Path, split_folder: str, classes: Sequence[Sequence[str]], used: Callable[[str], bool] = lambda name: True
) -> Listing:
    """The images of one split: of each class its folders in turn, of each folder the files whose name is `used`.

    Raises:
        UserError: a folder is missing, holds no image that is used, or a link to nothing in place of one.
    """
    files: list[str] = []
    labels: list[int] = []
    for label, folders in enumerate(classes):
        for name in folders:
            relative = f"{split_folder}/{name}" if split_folder else name
            folder = root / relative
            if not folder.is_dir():
                raise UserError(f"data.path: the class folder {folder} is missing")
            with os.scandir(folder) as entries:
                found = sorted(entry.name for entry in entries if _is_image(entry) and used(entry.name))
            if not found:
                raise UserError(f"data.path: the class folder {folder} holds no image ({', '.join(SUFFIXES)})")
            files += [f"{relative}/{file}" for file in found]
            labels += [label] * len(found)
    return Listing(tuple(files), np.array(labels, np.int64), split_folder)


def _is_image(entry: os.DirEntry[str]) -> bool:
    named = entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith(".")
    return named and _existing(entry).is_file()


def _existing(entry: os.DirEntry[str]) -> os.DirEntry[str]:
    """The entry, unless it is a link that leads nowhere, which is neither a file nor a folder."""
    if entry.is_symlink() and not Path(entry.path).exists():
        raise UserError(f"data.path: {entry.path} is a link to nothing")
    return entry


def list_images(parameters: Data) -> tuple[dict[str, Listing], tuple[str, ...]]:
    """The image files of each split, or of the pool "all", and the names of the classes; no file is opened.

    Raises:
        UserError: the folder has another layout, a class folder is missing or empty, or a link leads nowhere.
    """
    root = require_path(parameters)
    folders = list_folders(root)
    if not folders:
        raise UserError(f"data.path: {root} holds no class folders")
    # A class may be called "train"; a split is told by the folders in it.
    if not any(name in SPLITS and list_folders(root / name) for name in folders):
        return {POOL: list_split(root, "", [[name] for name in folders])}, tuple(folders)
    others = [name for name in folders if name not in SPLITS]
    if others:
        raise UserError(f"data.path: {root} holds {others[0]!r} beside its splits; move it elsewhere")
    chosen: dict[str, str] = {}
    for name in sorted(folders, key=list(SPLITS).index):
        if SPLITS[name] in chosen:
            raise UserError(f"data.path: {root} holds both {chosen[SPLITS[name]]!r} and {name!r}; keep one")
        chosen[SPLITS[name]] = name
    first = next(iter(chosen.values()))
    class_names = list_folders(root / first)
    for name in chosen.values():
        unknown = sorted(set(list_folders(root / name)) - set(class_names))
        if unknown:
            raise UserError(f"data.path: {root / name} has a class folder {unknown[0]!r} that {first!r} has not")
    classes = [[name] for name in class_names]
    return {split: list_split(root, name, classes) for split, name in chosen.items()}, tuple(class_names)


@dataclass(frozen=True)
class Facts:
    """What one look at a file told: its digest and, where it was decoded, mode and size or why that failed."""

    sha256: str
    mode: str = ""
    width: int = 0
    height: int = 0
    problem: str | None = None


def _hash(path: Path) -> Facts:
    return Facts(hashlib.sha256(path.read_bytes()).hexdigest())


def _look(path: Path) -> Facts:
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            # Pillow cuts 16 bits a channel to 8 without a word; only the raw mode of a tile tells.
            deep = any(";16" in str(tile) for tile in image.tile)
            count = getattr(image, "n_frames", 1) if image.format in OF_SEVERAL_IMAGES else 1
            if count > 1:
                return Facts(sha256, problem=f"holds {count} images")
            image.load()
            mode = WITH_TRANSPARENT_COLOURS.get(image.mode, image.mode) if "transparency" in image.info else image.mode
            return Facts(sha256, f"{mode} with 16 bits" if deep else mode, image.width, image.height)
    except MemoryError:
        raise
    except UnidentifiedImageError:
        # Its own words hold an address in memory.
        return Facts(sha256, problem=f"no image that Pillow reads as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    except Exception as error:  # each decoder has exceptions of its own for damaged files
        return Facts(sha256, problem=str(error) or type(error).__name__)


def _look_at_all(root: Path, files: Sequence[str], look: Callable[[Path], Facts]) -> list[Facts]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda file: look(root / file), files))


def digest_images(parameters: Data, listings: Mapping[str, Listing]) -> str:
    """The digest of all files of the listings, none of which is decoded."""
    root = require_path(parameters)
    return combine_digests(
        {
            file: facts.sha256
            for listing in listings.values()
            for file, facts in zip(listing.files, _look_at_all(root, listing.files, _hash), strict=True)
        }
    )


# Given a published set's listings, its parameters, and what to do where a number is not the published one.
CheckCounts = Callable[[Mapping[str, Listing], "Data", str], None]


def digest_published(parameters: Data, listings: Mapping[str, Listing], check_counts: CheckCounts) -> str:
    """The digest of a published set that the user brings, which is whole unless `sha256` says that others are meant.

    Raises:
        UserError: it is not whole; with the digest.
    """
    found = digest_images(parameters, listings)
    if parameters.sha256 is None:
        check_counts(listings, parameters, f"mend it, or, to use just these images, give data.sha256: {found}")
    return found


def read_published(
    parameters: Data, listings: Mapping[str, Listing], class_names: tuple[str, ...], check_counts: CheckCounts
) -> dict[str, RawData]:
    """The images of such a set, all as RGB.

    Raises:
        UserError: it is not whole, or as `load` does.
    """
    if parameters.sha256 is None:
        check_counts(listings, parameters, "mend it, or give data.sha256, which `robustfeatures fetch` tells")
    return read_images(parameters, listings, class_names, convert=True)


def read_images(
    parameters: Data, listings: Mapping[str, Listing], class_names: tuple[str, ...], *, convert: bool = False
) -> dict[str, RawData]:
    """Each listing's images as uint8 (N, C, H, W), decoded when they are asked for, after one look at all of them.

    With `convert` all become RGB, whatever their mode.

    Raises:
        UserError: as `load` does.
    """
    root = require_path(parameters)
    looked = {split: _look_at_all(root, listing.files, _look) for split, listing in listings.items()}
    facts = {
        file: fact
        for split, listing in listings.items()
        for file, fact in zip(listing.files, looked[split], strict=True)
    }
    check_digest(parameters, combine_digests({file: fact.sha256 for file, fact in facts.items()}))
    _check_readable(facts, parameters)
    readable = {file: fact for file, fact in facts.items() if fact.problem is None}
    mode = "RGB" if convert else _common_mode(readable)
    _check_depth(readable, convert)
    height, width = _common_size(readable, parameters.size)
    result: dict[str, RawData] = {}
    for split, listing in listings.items():
        rows = [row for row, fact in enumerate(looked[split]) if fact.problem is None]
        images = ImageFiles(root, tuple(listing.files[row] for row in rows), mode, height, width, parameters.size)
        result[split] = RawData(images, listing.labels[rows], class_names, listing.names(rows))
    return result


def _check_readable(facts: Mapping[str, Facts], parameters: Data) -> None:
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


def _check_depth(facts: Mapping[str, Facts], convert: bool) -> None:
    known = GREY | COLOUR | TRANSPARENT if convert else GREY | COLOUR
    for file, fact in facts.items():
        if fact.mode not in known:
            raise UserError(
                f"data.path: {file}: the mode is {fact.mode}; save it with 8 bits a channel, grey or RGB, without alpha"
            )


def _common_mode(facts: Mapping[str, Facts]) -> str:
    grey = next((file for file, fact in facts.items() if fact.mode in GREY), None)
    colour = next((file for file, fact in facts.items() if fact.mode in COLOUR), None)
    if grey is not None and colour is not None:
        raise UserError(
            f"data.path: {grey}: grey image where colour is expected, as in {colour}; save all as RGB, or all as grey"
        )
    return "RGB" if grey is None else "L"


def _common_size(facts: Mapping[str, Facts], size: int | None) -> tuple[int, int]:
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
    """Images (N, C, H, W), uint8, decoded from their files when they are asked for.

    mode: "L" (C = 1) or "RGB" (C = 3). size: the side of the square that each image is resized and cut to, or None.
    """

    root: Path
    files: tuple[str, ...]
    mode: str
    height: int
    width: int
    size: int | None

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.files), 1 if self.mode == "L" else 3, self.height, self.width)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        images = np.empty((len(rows), *self.shape[1:]), np.uint8)
        with ThreadPoolExecutor(THREADS) as pool:
            for place, image in zip(images, self._decoded(pool, rows), strict=True):
                place[...] = image
        return images

    def _decoded(self, pool: ThreadPoolExecutor, rows: NDArray[np.int64]) -> Iterator[NDArray[np.uint8]]:
        return pool.map(partial(_decode, mode=self.mode, size=self.size), [self.root / self.files[row] for row in rows])


def _decode(path: Path, mode: str, size: int | None) -> NDArray[np.uint8]:
    """One image, (C, H, W). The orientation in a photograph's EXIF data is not applied."""
    with Image.open(path, formats=FORMATS) as opened:
        image = opened.convert(mode)
    pixels = np.asarray(image if size is None else crop_square(image, size))
    return pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)
