"""CINIC-10 and its two parts, from the user's unpacked folder (Darlow et al., 2018, doi:10.7488/ds/2448).

Each of `train`, `valid` and `test` holds 90 000 colour images of 32x32 pixels in CIFAR-10's ten classes. The data set's
README tells the parts apart by file name: a CIFAR-10 image is `cifar-10-<origin>-<index>.png`, where origin is train or
test, an ImageNet image `<synset>_<number>.png`. Its own notebooks ask only for "cifar" in the name, and the published
archive spells it `cifar10-`, so here a name that begins with "cifar" is CIFAR-10's, one like `n01234567_89` ImageNet's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.data.folder import (
    Listing,
    digest_published,
    list_folders,
    list_split,
    read_published,
    require_path,
)
from robustfeatures.data.raw import RawData
from robustfeatures.data.registry import find_source
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.data.settings import Data

SPLITS = {"train": "train", "validation": "valid", "test": "test"}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def _from_cifar(name: str) -> bool:
    if name.startswith("cifar"):
        return True
    if re.match(r"n\d{8}_", name):
        return False
    raise UserError(f"data.path: {name!r} is no file of CINIC-10: neither 'cifar...' nor '<synset>_<number>'")


PARTS: dict[str, Callable[[str], bool]] = {
    "cinic10": lambda name: True,
    "cinic10-cifar": _from_cifar,
    "cinic10-imagenet": lambda name: not _from_cifar(name),
}


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """The splits train, validation (its folder `valid`) and test, uint8 (N, 3, 32, 32); grey files become colour.

    The source `cinic10-cifar` takes the images from CIFAR-10 alone, `cinic10-imagenet` those from ImageNet.

    Raises:
        UserError: a split or a class folder is missing or empty, or has not the published number of images (unless
            `sha256` says that other images are meant), or as the source `folder` does.
    """
    return read_published(parameters, _list(parameters), CLASSES, _check_counts)


def compute_digest(parameters: Data) -> str:
    """The digest of the images that the source uses, like that of the source `folder`.

    Raises:
        UserError: as `load` does where it does not decode an image; with the digest, if only their number is wrong.
    """
    return digest_published(parameters, _list(parameters), _check_counts)


def _check_counts(listings: Mapping[str, Listing], parameters: Data, remedy: str) -> None:
    for split, published in find_source(parameters.source).published_images.items():
        found = len(listings[split].files)
        if found != published:
            raise UserError(
                f"data.path: {parameters.path}: {split} has {found} images, not the published {published}; {remedy}"
            )


def _list(parameters: Data) -> dict[str, Listing]:
    root = require_path(parameters)
    missing = sorted(set(SPLITS.values()) - set(list_folders(root)))
    if missing:
        raise UserError(f"data.path: {root} has no folder {missing[0]!r}; CINIC-10 has train, valid and test")
    used = PARTS[parameters.source]
    return {split: list_split(root, name, [[one] for one in CLASSES], used) for split, name in SPLITS.items()}
