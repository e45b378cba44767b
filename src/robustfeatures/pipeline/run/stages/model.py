"""Stage model: train a network, in the standard way or adversarially, on an original or a derived data set."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.pipeline.run.checkpoints import Checkpoints
from robustfeatures.pipeline.store.networks import save_network
from robustfeatures.training.loop import HistoryRow
from robustfeatures.training.model import train_model

if TYPE_CHECKING:
    from robustfeatures.pipeline.run.job import Job
    from robustfeatures.training.settings import Model

log = logging.getLogger(__name__)


def make(parameters: Model, folder: Path, job: Job) -> None:
    """Write `model.safetensors` and `history.csv` (one row per epoch and probe)."""
    found = train_model(parameters, job, _checkpoints(job))
    if parameters.probes:
        job.costs["probe_seconds"] = found.probe_seconds
        log.info("probes took %.1f s of %.1f s", found.probe_seconds, job.computing_seconds)
    data, architecture = job.dataset("data", "train"), parameters.architecture
    save_network(
        found.network,
        folder / "model.safetensors",
        architecture=architecture.name,
        width=architecture.width,
        class_names=data.class_names,
        image_shape=data.image_shape,
    )
    _write_history(folder / "history.csv", found.history)


@contextmanager
def _checkpoints(job: Job) -> Iterator[Checkpoints]:
    """The job's checkpoints. The time inside counts as training."""
    with job.computing(), Checkpoints(job.scratch) as checkpoints:
        yield checkpoints


def _write_history(path: Path, history: Sequence[HistoryRow]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HistoryRow.__annotations__)
        writer.writerows(
            (row.epoch, row.probe, row.network, repr(row.value), repr(row.loss), row.images) for row in history
        )
