"""Images of the user's own in one `.npz` file.

A pool is `images` (N, C, H, W), uint8 or float32 in [0, 1], and `labels`, integer (N,). Splits are `train_images`,
`train_labels`, and the same for `validation` and `test`. `class_names` is optional; other arrays are left alone.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robustfeatures.data.folder import check_digest, own_path
from robustfeatures.data.raw import POOL, RawData
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.recipes.parameters import Data

SPLITS = ("train", "validation", "test")


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """The splits of the file, or its pool "all", in memory.

    Raises:
        UserError: the file is missing, damaged or another than the recipe's, lacks an array, or an array has another
            shape, type or range.
    """
    path = own_path(parameters)
    check_digest(parameters, own_digest(parameters))
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {split: (arrays[images], arrays[labels]) for split, images, labels in _fields(arrays.files, path)}
            names = arrays.get("class_names")
    except (zipfile.BadZipFile, zlib.error, TypeError, ValueError, OSError) as error:
        raise UserError(f"data.path: {path} is not a readable .npz file: {error}") from error
    except KeyError as error:
        raise UserError(f"data.path: {path} has no array {error.args[0].split()[0]!r}") from error
    for split, (_, labels) in found.items():
        if labels.dtype.kind not in "iu":
            raise UserError(f"{_where(path, split)}: labels: the type is {labels.dtype}, not an integer")
    _check_alike({split: images for split, (images, _) in found.items()}, path)
    if names is None:
        names = np.arange(max((int(labels.max(initial=0)) for _, labels in found.values())) + 1)
    class_names = tuple(str(name) for name in np.atleast_1d(names))
    return {split: _raw(images, labels, class_names, _where(path, split)) for split, (images, labels) in found.items()}


def own_digest(parameters: Data) -> str:
    """The SHA-256 of the file's bytes."""
    path = own_path(parameters)
    if not path.is_file():
        raise UserError(f"data.path: {path} is not a file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_range(images: NDArray[Any], where: str) -> None:
    """Raise a UserError unless all values of images with a floating-point type lie in [0, 1]."""
    if images.dtype.kind != "f" or not images.size:
        return
    # NaN fails every comparison, and so this one.
    if not (images.min() >= 0 and images.max() <= 1):
        raise UserError(f"{where}: images: values from {images.min()} to {images.max()}; they must lie in 0 to 1")


def _where(path: Path, split: str) -> str:
    return f"data.path: {path}" if split == POOL else f"data.path: {path}: {split}"


def _fields(arrays: list[str], path: Path) -> list[tuple[str, str, str]]:
    """The split, and the names of its arrays of images and labels."""
    splits = [split for split in SPLITS if f"{split}_images" in arrays or f"{split}_labels" in arrays]
    if not splits:
        return [(POOL, "images", "labels")]
    if "images" in arrays:
        raise UserError(f"data.path: {path} has both 'images' and '{splits[0]}_images'; keep the pool or the splits")
    return [(split, f"{split}_images", f"{split}_labels") for split in splits]


def _check_alike(images: Mapping[str, NDArray[Any]], path: Path) -> None:
    first, expected = next(iter(images.items()))
    for split, array in images.items():
        if array.shape[1:] != expected.shape[1:] or array.dtype != expected.dtype:
            raise UserError(
                f"data.path: {path}: {split}_images are {array.dtype} {array.shape[1:]}, "
                f"{first}_images {expected.dtype} {expected.shape[1:]}; all splits must be alike"
            )


def _raw(images: NDArray[Any], labels: NDArray[Any], class_names: tuple[str, ...], where: str) -> RawData:
    raw = RawData(images, labels.astype(np.int64), class_names)
    raw.check(where)
    check_range(images, where)
    return raw
