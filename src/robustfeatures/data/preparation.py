"""From a source to the splits of a data set: load the images, draw the splits, apply the operations in order."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from robustfeatures.data.operations import ResizedImages, apply_operation
from robustfeatures.data.raw import Part, RawData
from robustfeatures.data.registry import Loader, find_source
from robustfeatures.data.settings import POOL
from robustfeatures.engine.registry import load_attribute
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.data.settings import Data


def prepare_splits(parameters: Data, raw_folder: Path) -> dict[str, Part]:
    """The splits of a data set by name; images are read on access.

    Raises:
        UserError: the source cannot be read or split, or an operation does not fit it.
    """
    parameters = add_default_path(parameters, raw_folder)
    loader: Loader = load_attribute(find_source(parameters.source).loader)
    raw = loader(parameters, raw_folder)
    for name, data in raw.items():
        data.check(f"data.path: {parameters.path}" if parameters.path else f"data.source: {parameters.source}")
        # A folder of images has resized its files already, because their sizes may differ.
        if parameters.size is not None and data.images.shape[2:] != (parameters.size, parameters.size):
            raw[name] = replace(data, images=ResizedImages(data.images, parameters.size))
    parts = draw_splits(raw, parameters)
    for operation in parameters.operations:
        parts = apply_operation(parts, operation, lambda other: prepare_splits(other, raw_folder))
    return parts


def add_default_path(parameters: Data, raw_folder: Path) -> Data:
    """The parameters with `path`. A published set that the user provides has a default path below `raw_folder`."""
    folder = find_source(parameters.source).user_folder
    if parameters.path is not None or folder is None:
        return parameters
    return replace(parameters, path=str(raw_folder / folder))


def draw_splits(raw: dict[str, RawData], parameters: Data) -> dict[str, Part]:
    """Draw the splits train, validation and test, each in the order of the source.

    `parameters.test` and `parameters.validation` are shares of the pool, or of the source's train split if it has one.
    `test` is drawn first, then `validation` from the rest.

    Raises:
        UserError: a share is missing, or is given for a split that the source already has; or no image of a class is
            drawn for a split, or left to train on.
    """
    parts = {name: Part.from_raw(data, name) for name, data in raw.items()}
    if POOL in parts:
        if parameters.test is None:
            raise UserError("data.test: the source has one pool of images; say what share of it is for testing")
        parts["train"] = parts.pop(POOL)
    whole = parts.get("train")
    for name, share in (("test", parameters.test), ("validation", parameters.validation)):
        if share is None:
            continue
        if name in parts:
            raise UserError(f"data.{name}: the source {parameters.source!r} has a {name} split of its own")
        if whole is None:
            raise UserError(f"data.{name}: the source {parameters.source!r} has no images to train on")
        count = _count_images(share, len(whole.labels))
        parts["train"], parts[name] = _draw(parts["train"], count, parameters.split_seed)
        # An operation may leave out or merge the class; it checks what is left.
        for drawn in () if parameters.operations else (name, "train"):
            _check_classes(parts[drawn], whole, f"data.{name}: {share:g}", drawn)
    return parts


def _check_classes(part: Part, whole: Part, where: str, name: str) -> None:
    """Check that a part has every class of the whole.

    Raises:
        UserError: it lacks one; the message begins with `where`.
    """
    lacking = np.setdiff1d(whole.labels, part.labels)
    if len(lacking):
        label = whole.class_names[lacking[0]]
        count = int((whole.labels == lacking[0]).sum())
        raise UserError(
            f"{where}: leaves the {name} split without the class {label!r}, which has {count} images; choose another "
            "share or add images"
        )


def _count_images(share: float, total: int) -> int:
    """The number of images in a share, rounded up."""
    # 0.55 * 100 is slightly more than 55 in floating point.
    return math.ceil(share * total - 1e-9)


def _draw(part: Part, count: int, seed: int) -> tuple[Part, Part]:
    """Split off `count` images, stratified by class: the rest, and the drawn images."""
    try:
        rest, drawn = train_test_split(
            # scikit-learn takes 32 bits.
            np.arange(len(part.labels)),
            test_size=count,
            stratify=part.labels,
            random_state=seed % 2**32,
        )
    except ValueError as error:
        raise UserError(f"data.validation, data.test: the images cannot be split so: {error}") from error
    return part.select(_sort(rest)), part.select(_sort(drawn))


def _sort(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.sort(rows).astype(np.int64)
