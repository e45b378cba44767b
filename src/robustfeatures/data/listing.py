"""The image files of a folder by split and class; no image is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from robustfeatures.data.own_files import SPLIT_NAMES, require_path
from robustfeatures.data.settings import POOL
from robustfeatures.errors import UserError, count_things
from robustfeatures.files import walk_files

if TYPE_CHECKING:
    from robustfeatures.data.settings import Data

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")


@dataclass(frozen=True)
class Listing:
    """The image files of one split, sorted by class, then by name.

    files: paths with forward slashes, relative to the source's folder.
    labels: int64 (N,).
    split_folder: the first part of each path, which is not part of an image's name; "" for a pool.
    """

    files: tuple[str, ...]
    labels: NDArray[np.int64]
    split_folder: str

    def names(self, rows: Iterable[int]) -> tuple[str, ...]:
        """The names of the images in these rows: their paths below the split folder."""
        start = len(self.split_folder) + 1 if self.split_folder else 0
        return tuple(self.files[row][start:] for row in rows)


def list_folders(folder: Path) -> list[str]:
    """The names of the visible folders in a folder, sorted.

    Raises:
        UserError: the path is not a folder, or the folder has a broken link.
    """
    if not folder.is_dir():
        raise UserError(f"data.path: {folder} is not a folder")
    with os.scandir(folder) as entries:
        visible = [_check_link(entry) for entry in entries if not entry.name.startswith(".")]
        return sorted(entry.name for entry in visible if entry.is_dir())


def list_split(
    root: Path, split_folder: str, classes: Sequence[Sequence[str]], is_used: Callable[[str], bool] = lambda name: True
) -> Listing:
    """The images of one split. A class has one or more folders; only file names for which `is_used` is true count.

    Raises:
        UserError: a folder is missing, has no such image, or has a broken link in place of an image.
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
                found = sorted(entry.name for entry in entries if _is_image(entry) and is_used(entry.name))
            if not found:
                raise UserError(f"data.path: the class folder {folder} holds no image ({', '.join(SUFFIXES)})")
            files += [f"{relative}/{file}" for file in found]
            labels += [label] * len(found)
    return Listing(tuple(files), np.array(labels, np.int64), split_folder)


def _is_image(entry: os.DirEntry[str]) -> bool:
    has_image_name = entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith(".")
    return has_image_name and _check_link(entry).is_file()


def _check_link(entry: os.DirEntry[str]) -> os.DirEntry[str]:
    """The entry, unless it is a broken link.

    Raises:
        UserError: it is a broken link.
    """
    if entry.is_symlink() and not Path(entry.path).exists():
        raise UserError(f"data.path: {entry.path} is a link to nothing")
    return entry


def describe_unread(root: Path, listings: Mapping[str, Listing]) -> str:
    """How many visible files of a folder are no image of a listing, and the first of them; empty if there are none."""
    read = {root / file for listing in listings.values() for file in listing.files}
    visible = (path for path in walk_files(root) if not any(part[0] == "." for part in path.relative_to(root).parts))
    unread = [path for path in visible if path not in read]
    if not unread:
        return ""
    others = count_things(len(unread), "other file")
    return f"not read: {others}, first {unread[0]}; images lie in class folders ({', '.join(SUFFIXES)})"


def list_images(parameters: Data) -> tuple[dict[str, Listing], tuple[str, ...]]:
    """The image files of each split, or of the pool "all", and the class names.

    Raises:
        UserError: the folder has another layout, a class folder is missing or empty, or a link is broken.
    """
    root = require_path(parameters)
    folders = list_folders(root)
    if not folders:
        raise UserError(f"data.path: {root} holds no class folders")
    # A class may also be called "train", but only a split has folders in it.
    if not any(name in SPLIT_NAMES and list_folders(root / name) for name in folders):
        return {POOL: list_split(root, "", [[name] for name in folders])}, tuple(folders)
    others = [name for name in folders if name not in SPLIT_NAMES]
    if others:
        raise UserError(f"data.path: {root} holds {others[0]!r} beside its splits; move it elsewhere")
    chosen: dict[str, str] = {}
    for name in sorted(folders, key=list(SPLIT_NAMES).index):
        if SPLIT_NAMES[name] in chosen:
            raise UserError(f"data.path: {root} holds both {chosen[SPLIT_NAMES[name]]!r} and {name!r}; keep one")
        chosen[SPLIT_NAMES[name]] = name
    first = next(iter(chosen.values()))
    class_names = list_folders(root / first)
    for name in chosen.values():
        unknown = sorted(set(list_folders(root / name)) - set(class_names))
        if unknown:
            raise UserError(f"data.path: {root / name} has a class folder {unknown[0]!r} that {first!r} has not")
    classes = [[name] for name in class_names]
    return {split: list_split(root, name, classes) for split, name in chosen.items()}, tuple(class_names)
