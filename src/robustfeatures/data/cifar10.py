"""CIFAR-10 (Krizhevsky, 2009): 60 000 photographs of ten classes, 32x32 pixels, read by torchvision."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustfeatures.data.download import Download, check_counts, sole_right
from robustfeatures.data.raw import RawData
from robustfeatures.errors import UserError
from robustfeatures.vision import torchvision

if TYPE_CHECKING:
    from robustfeatures.recipes.parameters import Data

COUNTS = {"train": 50_000, "test": 10_000}


def downloads(parameters: Data, raw: Path) -> tuple[Download, ...]:
    """The one archive, with torchvision's address and MD5, at the place where torchvision looks for it."""
    kind = torchvision().datasets.CIFAR10
    return (Download((kind.url,), _folder(raw) / kind.filename, md5=kind.tgz_md5),)


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """The published splits: train (50 000, 3, 32, 32) and test (10 000, 3, 32, 32), uint8, with their file names.

    The extracted files, if they are whole, are enough; otherwise the archive is downloaded.

    Raises:
        UserError: the archive cannot be fetched, or does not hold what was published.
    """
    kind, folder = torchvision().datasets.CIFAR10, _folder(raw)
    sets = _extracted(kind, folder)
    if sets is None:
        for file in downloads(parameters, raw):
            file.bring()
        sets = _extract(kind, folder)
    splits = {split: _split(sets[split], files, folder) for split, files in _files(kind).items()}
    check_counts(splits, COUNTS, parameters.source)
    return splits


def _folder(raw: Path) -> Path:
    return raw / "cifar10"


def _files(kind: Any) -> dict[str, list[list[str]]]:
    return {"train": kind.train_list, "test": kind.test_list}


def _opened(kind: Any, folder: Path) -> dict[str, Any]:
    return {split: kind(folder, train=split == "train") for split in COUNTS}


def _extracted(kind: Any, folder: Path) -> dict[str, Any] | None:
    try:
        return _opened(kind, folder)
    except (RuntimeError, FileNotFoundError):
        return None


def _extract(kind: Any, folder: Path) -> dict[str, Any]:
    with sole_right(folder):
        sets = _extracted(kind, folder)
        if sets is not None:
            return sets
        # torchvision does not look at the file of class names when it asks whether there is anything to extract.
        shutil.rmtree(folder / kind.base_folder, ignore_errors=True)
        try:
            kind(folder, download=True)
            return _opened(kind, folder)
        except RuntimeError as error:
            raise UserError(f"{folder}: the archive does not hold the published files: {error}") from error


def _split(published: Any, files: Iterable[list[str]], folder: Path) -> RawData:
    names: list[str] = []
    for name, _ in files:
        with (folder / published.base_folder / name).open("rb") as file:
            # torchvision has just found each file's MD5 to be the published one.
            names += pickle.load(file, encoding="latin1")["filenames"]  # noqa: S301
    images = np.ascontiguousarray(published.data.transpose(0, 3, 1, 2))
    return RawData(
        images,
        np.array(published.targets, np.int64),
        tuple(published.classes),
        tuple(names),
    )
