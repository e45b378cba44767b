"""MNIST (LeCun et al., 1998): 70 000 handwritten digits, grey, 28x28 pixels, read by torchvision."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robustfeatures.data.download import Download, check_counts, hold_lock
from robustfeatures.data.raw import RawData
from robustfeatures.engine.vision import import_torchvision
from robustfeatures.files import write_atomically

if TYPE_CHECKING:
    from robustfeatures.data.settings import Data


def downloads(parameters: Data, raw: Path) -> tuple[Download, ...]:
    """The four files, with torchvision's mirrors, MD5 sums and paths."""
    kind = import_torchvision().datasets.MNIST
    place = _folder(raw) / kind.__name__ / "raw"
    return tuple(
        Download(tuple(mirror + name for mirror in kind.mirrors), place / name, md5=md5) for name, md5 in kind.resources
    )


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """The published splits: train (60 000, 1, 28, 28) and test (10 000, 1, 28, 28), uint8.

    Raises:
        UserError: a file cannot be fetched, or does not hold the published images.
    """
    kind, folder, files = import_torchvision().datasets.MNIST, _folder(raw), downloads(parameters, raw)
    for file in files:
        file.fetch()
    _extract(folder, files)
    # torchvision calls the class 0 "0 - zero".
    class_names = tuple(name.partition(" ")[0] for name in kind.classes)
    # The published order: training images, training labels, test images, test labels.
    pairs = {"train": files[:2], "test": files[2:]}
    splits = {split: _read_split(images.path, labels.path, class_names) for split, (images, labels) in pairs.items()}
    check_counts(splits, parameters.source)
    return splits


def _folder(raw: Path) -> Path:
    return raw / "mnist"


def _extract(folder: Path, files: tuple[Download, ...]) -> None:
    if all(_is_extracted(file.path) for file in files):
        return
    with hold_lock(folder):
        for file in files:
            if not _is_extracted(file.path):
                write_atomically(_without_suffix(file.path), gzip.decompress(file.path.read_bytes()))


def _is_extracted(archive: Path) -> bool:
    extracted = _without_suffix(archive)
    return extracted.is_file() and extracted.read_bytes() == gzip.decompress(archive.read_bytes())


def _without_suffix(archive: Path) -> Path:
    return archive.with_suffix("")


def _read_split(images: Path, labels: Path, class_names: tuple[str, ...]) -> RawData:
    # torchvision's class would prefer files that its first versions left in a folder beside these, unchecked.
    reading = import_torchvision().datasets.mnist
    pixels = reading.read_image_file(_without_suffix(images)).numpy()[:, None]
    return RawData(pixels, reading.read_label_file(_without_suffix(labels)).numpy().astype(np.int64), class_names)
