"""Stage data: raw images into the canonical form, split once and for all, stratified by class."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sklearn.model_selection import train_test_split

from robustfeatures.data.dataset import ImageDataset, write_dataset
from robustfeatures.data.raw import RawData
from robustfeatures.data.registry import source_module
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.jobs import Job
    from robustfeatures.recipes.parameters import Data


def make(parameters: Data, inputs: Mapping[str, Path], folder: Path, job: Job) -> None:
    """Write `data.zarr` with the splits train, validation and test; each keeps the order of the source."""
    raw: RawData = import_module(source_module(parameters.source)).load(parameters)
    raw.check(parameters.file or f"data.source {parameters.source}")
    write_dataset(folder / "data.zarr", {name: _part(raw, index) for name, index in split(raw, parameters).items()})


def split(raw: RawData, parameters: Data) -> dict[str, np.ndarray]:
    """The indices of each split, sorted: the test part first drawn from all, validation from what is left.

    Raises:
        UserError: a class has too few images for every split to hold one of it.
    """
    everything = np.arange(len(raw.labels))
    try:
        rest, test = train_test_split(
            everything, test_size=parameters.test, stratify=raw.labels, random_state=parameters.split_seed
        )
        train, validation = train_test_split(
            rest,
            test_size=parameters.validation / (1 - parameters.test),
            stratify=raw.labels[rest],
            random_state=parameters.split_seed,
        )
    except ValueError as error:
        raise UserError(f"data.validation, data.test: the images cannot be split so: {error}") from error
    return {"train": np.sort(train), "validation": np.sort(validation), "test": np.sort(test)}


def _part(raw: RawData, index: np.ndarray) -> ImageDataset:
    return ImageDataset(
        images=raw.images[index],
        labels=raw.labels[index],
        provenance={"source_index": index.astype(np.int64)},
        class_names=raw.class_names,
    )
