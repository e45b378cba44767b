"""Stage data: convert raw images to the canonical form and split them, stratified by class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.preparation import prepare_splits
from robustfeatures.pipeline.store.datasets import write_dataset

if TYPE_CHECKING:
    from robustfeatures.data.raw import Part
    from robustfeatures.data.settings import Data
    from robustfeatures.pipeline.run.job import Job


def make(parameters: Data, folder: Path, job: Job) -> None:
    """Write `data.zarr` with the splits of the source and those that are drawn from it."""
    parts = prepare_splits(parameters, job.raw)
    write_dataset(folder / "data.zarr", {name: _dataset(part) for name, part in parts.items()})


def _dataset(part: Part) -> ImageDataset:
    return ImageDataset(
        images=part.images,
        labels=part.labels,
        provenance={"source_index": part.source_index},
        class_names=part.class_names,
    )
