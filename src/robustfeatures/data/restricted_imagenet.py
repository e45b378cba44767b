"""Restricted ImageNet: super-classes of the ImageNet of the ILSVRC 2012, from the user's folder of it.

The ranges are those of Table 2 of not-bugs-2019. Table 1 of at-odds-2019 lists the same nine, although its text speaks
of 8 super-classes and nothing says which one its authors left out or merged; the operations `classes` and `merge` make
any such variant of this source.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.data.folder import Listing, digest_of_images, folders_in, list_split, own_path, read_images
from robustfeatures.data.raw import RawData
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.recipes.parameters import Data

# The first and the last class of each range, as places among the 1000 sorted synsets.
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
# Images of each of its classes (Russakovsky et al., 2015, "ImageNet Large Scale Visual Recognition Challenge").
FEWEST = {"train": 732, "test": 50}
MOST = {"train": 1300, "test": 50}


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """The splits train and test (ImageNet's `val`), uint8 (N, 3, size, size); only files of the used classes are read.

    ImageNet holds some grey, CMYK and transparent images; all become RGB.

    Raises:
        UserError: `size` is not given, a split has not 1000 class folders, a class has not ImageNet's number of images
            (unless `sha256` says that other images are meant), or as the source `folder` does.
    """
    if parameters.size is None:
        raise UserError(f"data.size: the source {parameters.source!r} needs a size, such as 224; its images have many")
    listings = _list(parameters)
    if parameters.sha256 is None:
        _check_counts(listings, parameters)
    return read_images(parameters, listings, tuple(RANGES), convert=True)


def _check_counts(listings: dict[str, Listing], parameters: Data) -> None:
    for split, listing in listings.items():
        per_class = Counter(file.rpartition("/")[0] for file in listing.files)
        for folder, count in per_class.items():
            if not FEWEST[split] <= count <= MOST[split]:
                raise UserError(
                    f"data.path: {parameters.path}: {folder} has {count} images, ImageNet's has {FEWEST[split]} to "
                    f"{MOST[split]}; mend it, or give data.sha256 of what you have"
                )


def own_digest(parameters: Data) -> str:
    """The digest of the images of the used classes, like that of the source `folder`."""
    return digest_of_images(parameters, _list(parameters))


def _list(parameters: Data) -> dict[str, Listing]:
    root = own_path(parameters)
    return {split: _list_split(root, name) for split, name in SPLITS.items()}


def _list_split(root: Path, name: str) -> Listing:
    folder = root / name
    if not folder.is_dir():
        raise UserError(f"data.path: {root} has no folder {name!r}; an ImageNet folder has train and val")
    synsets = folders_in(folder)
    if len(synsets) != CLASSES:
        raise UserError(f"data.path: {folder} has {len(synsets)} class folders; the ranges count in all {CLASSES}")
    return list_split(root, name, [synsets[first : last + 1] for first, last in RANGES.values()])
