"""MNIST (LeCun et al., 1998): 70 000 handwritten digits, grey, 28x28 pixels, read by torchvision."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustfeatures.data.download import Download, check_counts, sole_right
from robustfeatures.data.raw import RawData
from robustfeatures.vision import torchvision

if TYPE_CHECKING:
    from robustfeatures.recipes.parameters import Data

COUNTS = {"train": 60_000, "test": 10_000}


def downloads(parameters: Data, raw: Path) -> tuple[Download, ...]:
    """The four files, with torchvision's mirrors and MD5 sums, at the place where torchvision looks for them."""
    kind = torchvision().datasets.MNIST
    place = _folder(raw) / kind.__name__ / "raw"
    return tuple(
        Download(tuple(mirror + name for mirror in kind.mirrors), place / name, md5=md5) for name, md5 in kind.resources
    )


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """The published splits: train (60 000, 1, 28, 28) and test (10 000, 1, 28, 28), uint8.

    Raises:
        UserError: a file cannot be fetched, or does not hold what was published.
    """
    kind, folder, files = torchvision().datasets.MNIST, _folder(raw), downloads(parameters, raw)
    for file in files:
        file.bring()
    _extract(kind, folder, files)
    # "0 - zero" there.
    class_names = tuple(name.partition(" ")[0] for name in kind.classes)
    splits = {split: _split(kind(folder, train=split == "train"), class_names) for split in COUNTS}
    check_counts(splits, COUNTS, parameters.source)
    return splits


def _folder(raw: Path) -> Path:
    return raw / "mnist"


def _extract(kind: Any, folder: Path, files: tuple[Download, ...]) -> None:
    if all(_is_extracted(file.path) for file in files):
        return
    with sole_right(folder):
        if not all(_is_extracted(file.path) for file in files):
            # torchvision checks the archives alone, and takes whatever an interrupted extraction left for whole. The
            # last of its files is the last to come back, so a job that finds all of them whole can read them.
            for file in files:
                _without_suffix(file.path).unlink(missing_ok=True)
            kind(folder, download=True)


def _is_extracted(archive: Path) -> bool:
    extracted = _without_suffix(archive)
    return extracted.is_file() and extracted.read_bytes() == gzip.decompress(archive.read_bytes())


def _without_suffix(archive: Path) -> Path:
    return archive.with_suffix("")


def _split(published: Any, class_names: tuple[str, ...]) -> RawData:
    images = published.data.numpy()[:, None]
    labels = published.targets.numpy().astype(np.int64)
    return RawData(images, labels, class_names)
