"""Stage model: train a network on an original or a derived data set, or read one that was trained elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.errors import UserError
from robustfeatures.files import write_rows
from robustfeatures.models.own_files import declare_file
from robustfeatures.models.settings import Architecture, Pretrained
from robustfeatures.pipeline.run.checkpoints import Checkpoints
from robustfeatures.pipeline.run.device_models import DeviceModels
from robustfeatures.pipeline.run.gpus import check_enough, visible_gpus
from robustfeatures.pipeline.run.narrow_convolutions import find_narrow_convolutions
from robustfeatures.pipeline.store.networks import save_network
from robustfeatures.training.loop import HistoryRow
from robustfeatures.training.model import TrainedModel, initialise_network, train_model

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset
    from robustfeatures.models.network import Network
    from robustfeatures.pipeline.run.job import Job
    from robustfeatures.training.settings import Model

log = logging.getLogger(__name__)

# The seconds inside training, further costs by name, and the devices that made the weights.
Facts = tuple[float, dict[str, float], DeviceModels]


def make(parameters: Model | Pretrained, folder: Path, job: Job) -> None:
    """Write `model.safetensors` and `history.csv` (one row per epoch and probe; none for a network from elsewhere)."""
    if isinstance(parameters, Pretrained):
        # Imported here, so that a training does not load the code that reads other networks.
        from robustfeatures.models.pretrained import load_pretrained

        data = job.dataset("data", "train")
        network = load_pretrained(parameters, num_classes=data.num_classes, image_shape=data.image_shape)
        _write(folder, network, Architecture(name=parameters.architecture, width=parameters.width), data, [])
        return
    _check_precision(parameters, job)
    processes = parameters.training.gpus_per_training
    if processes is not None:
        job.computing_seconds, job.costs, job.blocks.models = _train_together(parameters, folder, job, processes)
        return
    _finish(train_model(parameters, job, _checkpoints(job)), parameters, folder, job)


def _check_precision(parameters: Model, job: Job) -> None:
    """Check that torch can train the network in this precision.

    Raises:
        UserError: it would compute wrong gradients (see `pipeline/run/narrow_convolutions.py`).
    """
    if parameters.precision != "bfloat16" or job.device.type != "cpu":
        return
    data = job.dataset("data", "train")
    if found := find_narrow_convolutions(initialise_network(parameters, data), data.image_shape):
        raise UserError(
            f"precision: in bfloat16 a processor computes wrong gradients for {found[0]}, a convolution of images "
            "narrower than its stride; set float32, or train on a GPU"
        )


def _train_together(parameters: Model, folder: Path, job: Job, processes: int) -> Facts:
    """Train in several processes, one for each GPU; without GPUs, they share the threads of the job."""
    import torch

    from robustfeatures.pipeline.run.processes import run_together

    gpus = job.device.type == "cuda"
    if gpus:
        check_enough(processes, visible_gpus())
    threads = max(1, torch.get_num_threads() // processes)
    return run_together(_train_share, (parameters, folder, job), processes, threads=threads, gpus=gpus)


def _train_share(parameters: Model, folder: Path, job: Job) -> Facts:
    """Train with the share of this process; the first process writes the result."""
    from torch import distributed

    from robustfeatures.training.distributed import train

    for path in job.own_files:
        declare_file(path)
    if distributed.get_rank() > 0:
        job.progress = lambda done, total: None
    found = train_model(parameters, job, _checkpoints(job), train)
    if distributed.get_rank() == 0:
        _finish(found, parameters, folder, job)
    # A checkpoint that was loaded here says which devices made it; the parent has not seen it.
    return job.computing_seconds, job.costs, job.blocks.models


def _finish(found: TrainedModel, parameters: Model, folder: Path, job: Job) -> None:
    if parameters.probes:
        job.costs["probe_seconds"] = found.probe_seconds
        log.info("probes took %.1f s of %.1f s", found.probe_seconds, job.computing_seconds)
    data = job.dataset("data", "train")
    _write(folder, found.network, parameters.architecture, data, found.history)


def _write(
    folder: Path, network: Network, architecture: Architecture, data: ImageDataset, history: Sequence[HistoryRow]
) -> None:
    save_network(
        network,
        folder / "model.safetensors",
        architecture=architecture.name,
        width=architecture.width,
        class_names=data.class_names,
        image_shape=data.image_shape,
    )
    write_rows(folder / "history.csv", list(HistoryRow.__annotations__), map(asdict, history))


@contextmanager
def _checkpoints(job: Job) -> Iterator[Checkpoints]:
    """The job's checkpoints. The time inside counts as training, and so does that of the jobs before it."""
    with job.computing(), Checkpoints(job.scratch, job.blocks.models) as checkpoints:
        yield checkpoints
    job.computing_seconds += checkpoints.seconds_before
