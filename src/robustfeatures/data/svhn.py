"""SVHN (Netzer et al., 2011), cropped digits: 99 289 house numbers in colour, 32x32 pixels, read by torchvision."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robustfeatures.data.download import Download, check_counts
from robustfeatures.data.raw import RawData
from robustfeatures.engine.vision import import_torchvision

if TYPE_CHECKING:
    from robustfeatures.data.settings import Data

# The published split "extra" (531 131 easier images) is left out.
SPLITS = ("train", "test")


def downloads(parameters: Data, raw: Path) -> tuple[Download, ...]:
    """The files of both splits, with torchvision's addresses, MD5 sums and paths."""
    published = import_torchvision().datasets.SVHN.split_list
    return tuple(Download((url,), _folder(raw) / name, md5=md5) for url, name, md5 in map(published.get, SPLITS))


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """The published splits: train (73 257, 3, 32, 32) and test (26 032, 3, 32, 32), uint8; class 0 is the digit 0.

    Raises:
        UserError: a file cannot be fetched, or does not hold the published images.
    """
    for file in downloads(parameters, raw):
        file.fetch()
    splits = {split: _read_split(raw, split) for split in SPLITS}
    check_counts(splits, parameters.source)
    return splits


def _folder(raw: Path) -> Path:
    return raw / "svhn"


def _read_split(raw: Path, split: str) -> RawData:
    published = import_torchvision().datasets.SVHN(_folder(raw), split=split)
    images = np.ascontiguousarray(published.data)
    class_names = tuple(str(digit) for digit in range(10))
    return RawData(images, published.labels, class_names)
