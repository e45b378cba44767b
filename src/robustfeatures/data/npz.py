"""Images of the user's own in one `.npz` file.

A pool is `images` (N, C, H, W), uint8 or float32 in [0, 1], and `labels`, integer (N,). Splits are `train_images`,
`train_labels`, and the same for `validation` (or `val`, or `valid`) and `test`. `class_names`, strings, is optional.
Other arrays are ignored, unless they are named like those of an unknown split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robustfeatures.data.own_files import SPLIT_NAMES, check_digest, require_path
from robustfeatures.data.raw import RawData, count_classes
from robustfeatures.data.settings import POOL
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from numpy.lib.npyio import NpzFile

    from robustfeatures.data.settings import Data


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """The splits of the file, or its pool "all", in memory.

    Raises:
        UserError: the file is missing or damaged, or has another digest; an array is missing or belongs to an unknown
            split; or an array has a wrong shape, type or range.
    """
    path = require_path(parameters)
    check_digest(parameters, compute_digest(parameters))
    prefixes, arrays, names = _read(path)
    where = {split: f"data.path: {path}" + (f": {prefix[:-1]}" if prefix else "") for split, prefix in prefixes.items()}
    for split, (_, labels) in arrays.items():
        if labels.dtype.kind not in "iu":
            raise UserError(f"{where[split]}: labels: the type is {labels.dtype}, not an integer")
    _check_same_kind({f"{prefixes[split]}images": images for split, (images, _) in arrays.items()}, path)
    if names is None:
        classes = max(count_classes(images, labels, where[split]) for split, (images, labels) in arrays.items())
        class_names = tuple(str(number) for number in range(classes))
    else:
        class_names = _decode_names(names, path)
    return {split: _make_raw(images, labels, class_names, where[split]) for split, (images, labels) in arrays.items()}


def compute_digest(parameters: Data) -> str:
    """The SHA-256 of the file's bytes."""
    path = require_path(parameters)
    if not path.is_file():
        raise UserError(f"data.path: {path} is not a file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_range(images: NDArray[Any], where: str) -> None:
    """Check that images of a floating-point type lie in [0, 1], and that others do not mean 0 to 1.

    Raises:
        UserError: a value lies outside, or the largest value of integers is 1; the message begins with `where`.
    """
    if not images.size:
        return
    if images.dtype.kind != "f":
        if images.max() == 1:
            raise UserError(f"{where}: images: the largest value is 1; integers mean 0 to 255, so multiply by 255")
        return
    # NaN fails this comparison too.
    if not (images.min() >= 0 and images.max() <= 1):
        raise UserError(f"{where}: images: values from {images.min()} to {images.max()}; they must lie in 0 to 1")


def _read(
    path: Path,
) -> tuple[dict[str, str], dict[str, tuple[NDArray[Any], NDArray[Any]]], NDArray[Any] | None]:
    """The prefix of each split, the images and labels of each split, and `class_names` or None."""
    try:
        with np.load(path, allow_pickle=False) as file:
            prefixes = find_prefixes(file.files, path)
            arrays = {
                split: (_read_array(file, f"{prefix}images", path), _read_array(file, f"{prefix}labels", path))
                for split, prefix in prefixes.items()
            }
            return prefixes, arrays, _read_array(file, "class_names", path) if "class_names" in file.files else None
    except (UserError, MemoryError):
        raise
    except Exception as error:  # zipfile and numpy raise many kinds for damaged content
        raise UserError(
            f"data.path: {path} is not a readable .npz file: {str(error) or type(error).__name__}"
        ) from error


def find_prefixes(arrays: list[str], path: Path) -> dict[str, str]:
    """Each split with the prefix of its array names, such as `val_` for `val_images`; "" for a pool.

    Raises:
        UserError: an array belongs to an unknown split, a split has two names, or there are a pool and splits.
    """
    given: dict[str, str] = {}
    for array in arrays:
        name, underscore, kind = array.rpartition("_")
        if not underscore or kind not in ("images", "labels"):
            continue
        if name not in SPLIT_NAMES:
            raise UserError(f"data.path: {path}: {array!r} is of no known split ({', '.join(SPLIT_NAMES)}); rename it")
        if given.setdefault(SPLIT_NAMES[name], name) != name:
            raise UserError(f"data.path: {path} has arrays of both {given[SPLIT_NAMES[name]]!r} and {name!r}; keep one")
    if not given:
        return {POOL: ""}
    splits = [split for split in dict.fromkeys(SPLIT_NAMES.values()) if split in given]
    if "images" in arrays:
        raise UserError(
            f"data.path: {path} has both 'images' and '{given[splits[0]]}_images'; keep the pool or the splits"
        )
    return {split: f"{given[split]}_" for split in splits}


def _read_array(file: NpzFile, name: str, path: Path) -> NDArray[Any]:
    if name not in file.files:
        raise UserError(f"data.path: {path} has no array {name!r}")
    array = file[name]
    # numpy returns members in another format as bytes.
    if not isinstance(array, np.ndarray):
        raise UserError(f"data.path: {path}: {name} is not an array in numpy's format")
    return array


def _decode_names(names: NDArray[Any], path: Path) -> tuple[str, ...]:
    if names.ndim != 1 or names.dtype.kind not in "US" or not len(names):
        raise UserError(
            f"data.path: {path}: class_names: shape {names.shape} and type {names.dtype}, not strings (classes,)"
        )
    try:
        return tuple((name if isinstance(name, bytes) else name.encode()).decode() for name in names.tolist())
    except (ValueError, SystemError) as error:  # the latter for numbers beyond Unicode's
        raise UserError(f"data.path: {path}: class_names: not text in UTF-8: {error}") from error


def _check_same_kind(images: Mapping[str, NDArray[Any]], path: Path) -> None:
    first, expected = next(iter(images.items()))
    for name, array in images.items():
        if array.shape[1:] != expected.shape[1:] or array.dtype != expected.dtype:
            raise UserError(
                f"data.path: {path}: {name} are {array.dtype} {array.shape[1:]}, "
                f"{first} {expected.dtype} {expected.shape[1:]}; all splits must be alike"
            )


def _make_raw(images: NDArray[Any], labels: NDArray[Any], class_names: tuple[str, ...], where: str) -> RawData:
    raw = RawData(images, labels, class_names)
    raw.check(where)
    check_range(images, where)
    # Convert after the check: before it, a label beyond int64 would silently become another label.
    return replace(raw, labels=labels.astype(np.int64))
