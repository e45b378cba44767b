"""Stage data: convert raw images to the canonical form and split them, stratified by class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.preparation import prepare_splits
from robustfeatures.pipeline.store.datasets import write_dataset
from robustfeatures.pipeline.store.verified import State, read_state, remember_digest

if TYPE_CHECKING:
    from robustfeatures.data.raw import Part
    from robustfeatures.data.settings import Data
    from robustfeatures.pipeline.run.job import Job


def make(parameters: Data, folder: Path, job: Job) -> None:
    """Write `data.zarr` with the splits of the source and those that are drawn from it."""
    state = _state_of_own_files(parameters)
    parts = prepare_splits(parameters, job.raw)
    write_dataset(folder / "data.zarr", {name: _dataset(part) for name, part in parts.items()})
    if state is not None:
        # The source has compared the files with their SHA-256, so a plan need not read them again.
        remember_digest(parameters.source, state, str(parameters.sha256))


def _state_of_own_files(parameters: Data) -> State | None:
    path = Path(parameters.path or "")
    return read_state(path) if parameters.path and parameters.sha256 and path.exists() else None


def _dataset(part: Part) -> ImageDataset:
    return ImageDataset(
        images=part.images,
        labels=part.labels,
        provenance={"source_index": part.source_index},
        class_names=part.class_names,
    )
