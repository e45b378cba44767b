"""From a source to the splits of a canonical data set: load, draw, then the operations in their order."""

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
    """The splits that the parameters describe, by name; images are not read before they are asked for.

    Raises:
        UserError: the source cannot be read or split so, or an operation does not fit it.
    """
    parameters = add_default_path(parameters, raw_folder)
    loader: Loader = load_attribute(find_source(parameters.source).loader)
    raw = loader(parameters, raw_folder)
    for name, data in raw.items():
        data.check(f"data.path: {parameters.path}" if parameters.path else f"data.source: {parameters.source}")
        # Image folders have resized their files already, whose sizes may differ.
        if parameters.size is not None and data.images.shape[2:] != (parameters.size, parameters.size):
            raw[name] = replace(data, images=ResizedImages(data.images, parameters.size))
    parts = draw_splits(raw, parameters)
    for operation in parameters.operations:
        parts = apply_operation(parts, operation, lambda other: prepare_splits(other, raw_folder))
    return parts


def add_default_path(parameters: Data, raw_folder: Path) -> Data:
    """The parameters with the place of a set that the user brings, where they do not give one."""
    folder = find_source(parameters.source).user_folder
    if parameters.path is not None or folder is None:
        return parameters
    return replace(parameters, path=str(raw_folder / folder))


def draw_splits(raw: dict[str, RawData], parameters: Data) -> dict[str, Part]:
    """Train, validation and test, each in the order of the source.

    Both shares are of all images of the pool, or of the source's train split where it brings one. `test` is drawn from
    them first, where the source brings no test split, then `validation` from what is left.

    Raises:
        UserError: a share is missing, or given for a split that the source brings itself; or a class has too few
            images for every split to hold one of it.
    """
    parts = {name: Part.whole(data, name) for name, data in raw.items()}
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
        count = _images_of(share, len(whole.labels))
        parts["train"], parts[name] = _drawn(parts["train"], count, parameters.split_seed)
    return parts


def _images_of(share: float, total: int) -> int:
    """A share of the images, rounded up."""
    # In floating point 0.55 of 100 is a little more than 55.
    return math.ceil(share * total - 1e-9)


def _drawn(part: Part, count: int, seed: int) -> tuple[Part, Part]:
    """The rest and `count` images, stratified by class."""
    try:
        rest, drawn = train_test_split(
            np.arange(len(part.labels)), test_size=count, stratify=part.labels, random_state=seed
        )
    except ValueError as error:
        raise UserError(f"data.validation, data.test: the images cannot be split so: {error}") from error
    return part.rows(_sorted(rest)), part.rows(_sorted(drawn))


def _sorted(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.sort(rows).astype(np.int64)
