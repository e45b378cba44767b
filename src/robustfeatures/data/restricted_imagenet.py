"""Restricted ImageNet: nine super-classes of ImageNet (ILSVRC 2012), from the user's folder.

The ranges are from Table 2 of not-bugs-2019. Table 1 of at-odds-2019 lists the same nine, but its text speaks of 8
super-classes and does not say which one is left out or merged. The operations `classes` and `merge` make such variants.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
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

# The first and the last class of each range, as indices into the 1000 sorted synsets.
RANGES = {
    "dog": (151, 268),
    "cat": (281, 285),
    "frog": (30, 32),
    "turtle": (33, 37),
    "bird": (80, 100),
    "primate": (365, 382),
    "fish": (389, 397),
    "crab": (118, 121),
    "insect": (300, 319),
}
# ImageNet's test images have no labels, so its validation images are the test split, as in the papers.
SPLITS = {"train": "train", "test": "val"}
CLASSES = 1000
# The number of images in each class (Russakovsky et al., 2015, "ImageNet Large Scale Visual Recognition Challenge").
FEWEST = {"train": 732, "test": 50}
MOST = {"train": 1300, "test": 50}


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """The splits train and test (ImageNet's `val`), uint8 (N, 3, size, size); other classes are not read.

    ImageNet holds some grey, CMYK and transparent images; all become RGB.

    Raises:
        UserError: `size` is not given; a split does not have 1000 class folders named after synsets; without
            `sha256`, a class has another number of images than in ImageNet; or an error of the source `folder`.
    """
    find_source(parameters.source).check_size(parameters.size)
    return read_published(parameters, _list_splits(parameters), tuple(RANGES), _check_counts)


def _check_counts(listings: Mapping[str, Listing], parameters: Data, remedy: str) -> None:
    for split, listing in listings.items():
        per_class = Counter(file.rpartition("/")[0] for file in listing.files)
        for folder, count in per_class.items():
            if not FEWEST[split] <= count <= MOST[split]:
                raise UserError(
                    f"data.path: {parameters.path}: {folder} has {count} images, ImageNet's has {FEWEST[split]} to "
                    f"{MOST[split]}; {remedy}"
                )


def compute_digest(parameters: Data) -> str:
    """The digest of the images of the nine super-classes, computed as for the source `folder`.

    Raises:
        UserError: as `load`, except for errors of decoding. If only the number of images is wrong, the message has the
            digest.
    """
    return digest_published(parameters, _list_splits(parameters), _check_counts)


def _list_splits(parameters: Data) -> dict[str, Listing]:
    root = require_path(parameters)
    synsets = {name: _list_synsets(root, name) for name in SPLITS.values()}
    differing = sorted(set.symmetric_difference(*map(set, synsets.values())))
    if differing:
        raise UserError(f"data.path: {root}: the class folder {differing[0]!r} is in only one of train and val")
    return {
        split: list_split(root, name, [synsets[name][first : last + 1] for first, last in RANGES.values()])
        for split, name in SPLITS.items()
    }


def _list_synsets(root: Path, name: str) -> list[str]:
    """The class folders of one split, in the order of ImageNet's classes."""
    folder = root / name
    if not folder.is_dir():
        raise UserError(f"data.path: {root} has no folder {name!r}; an ImageNet folder has train and val")
    synsets = list_folders(folder)
    # Other names have another order ("10" before "2"), which would make every label wrong.
    strange = [synset for synset in synsets if not re.fullmatch("n[0-9]{8}", synset)]
    if strange:
        raise UserError(f"data.path: {folder} has a class folder {strange[0]!r}, not a synset such as 'n02084071'")
    if len(synsets) != CLASSES:
        raise UserError(f"data.path: {folder} has {len(synsets)} class folders; the ranges count in all {CLASSES}")
    return synsets
