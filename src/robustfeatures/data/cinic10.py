"""CINIC-10 and its two parts, from the user's unpacked folder (Darlow et al., 2018, doi:10.7488/ds/2448).

Each of `train`, `valid` and `test` holds 90 000 colour images of 32x32 pixels in CIFAR-10's ten classes. File names
tell the parts apart. The data set's README names a CIFAR-10 image `cifar-10-<origin>-<index>.png`, where origin is
train or test, and an ImageNet image `<synset>_<number>.png`. The published archive writes `cifar10-`, and its notebooks
search for "cifar" only. So names that begin with "cifar" are from CIFAR-10, names like `n01234567_89` from ImageNet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.data.listing import Listing, list_folders, list_split
from robustfeatures.data.own_files import require_path
from robustfeatures.data.published import digest_published, read_published
from robustfeatures.data.raw import RawData
from robustfeatures.data.registry import find_source
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.data.settings import Data

SPLITS = {"train": "train", "validation": "valid", "test": "test"}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def _is_from_cifar(name: str) -> bool:
    if name.startswith("cifar"):
        return True
    if re.match(r"n\d{8}_", name):
        return False
    raise UserError(f"data.path: {name!r} is no file of CINIC-10: neither 'cifar...' nor '<synset>_<number>'")


PARTS: dict[str, Callable[[str], bool]] = {
    "cinic10": lambda name: True,
    "cinic10-cifar": _is_from_cifar,
    "cinic10-imagenet": lambda name: not _is_from_cifar(name),
}


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """The splits train, validation (the folder `valid`) and test, uint8 (N, 3, 32, 32); grey files become colour.

    The source `cinic10-cifar` has only the images from CIFAR-10, `cinic10-imagenet` only those from ImageNet.

    Raises:
        UserError: a split or a class folder is missing or empty; without `sha256`, a split has another number of
            images than published; or an error of the source `folder`.
    """
    return read_published(parameters, _list_splits(parameters), CLASSES, _check_counts)


def compute_digest(parameters: Data) -> str:
    """The digest of the images that the source uses, computed as for the source `folder`.

    Raises:
        UserError: as `load`, except for errors of decoding. If only the number of images is wrong, the message has the
            digest.
    """
    return digest_published(parameters, _list_splits(parameters), _check_counts)


def _check_counts(listings: Mapping[str, Listing], parameters: Data, remedy: str) -> None:
    for split, published in find_source(parameters.source).published_images.items():
        found = len(listings[split].files)
        if found != published:
            raise UserError(
                f"data.path: {parameters.path}: {split} has {found} images, not the published {published}; {remedy}"
            )


def _list_splits(parameters: Data) -> dict[str, Listing]:
    root = require_path(parameters)
    missing = sorted(set(SPLITS.values()) - set(list_folders(root)))
    if missing:
        raise UserError(f"data.path: {root} has no folder {missing[0]!r}; CINIC-10 has train, valid and test")
    is_used = PARTS[parameters.source]
    return {split: list_split(root, folder, [[name] for name in CLASSES], is_used) for split, folder in SPLITS.items()}
