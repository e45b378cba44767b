"""Stage model: a network trained, in the standard way or adversarially, on an original or a derived data set."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from robustfeatures.data.dataset import ImageDataset, read_dataset
from robustfeatures.models.creation import create
from robustfeatures.models.saving import save_network
from robustfeatures.randomness import split_seed
from robustfeatures.training.checkpoints import Checkpoints
from robustfeatures.training.loop import HistoryRow, Perturbation, ProbeSet, train

if TYPE_CHECKING:
    from robustfeatures.jobs import Job
    from robustfeatures.recipes.parameters import Model, Probe, Training


def make(parameters: Model, inputs: Mapping[str, Path], folder: Path, job: Job) -> None:
    """Write `model.safetensors` and `history.csv` (one row per epoch and probe)."""
    data = read_dataset(inputs["data"], "train")
    images = torch.from_numpy(data.float_images()).to(job.device)
    labels = torch.from_numpy(data.labels).to(job.device)
    torch.manual_seed(split_seed(parameters.seed, "initialisation"))
    architecture = parameters.architecture
    network = create(
        architecture.name, num_classes=data.num_classes, image_shape=data.image_shape, width=architecture.width
    )
    network.normalise_like(images.cpu())
    network.to(job.device)
    probes = [_probe_set(probe, inputs, job.device) for probe in parameters.probes]
    with job.computing():
        history = train(
            network,
            images,
            labels,
            parameters.training,
            seed=parameters.seed,
            probes=probes,
            perturbation=_perturbation(parameters.training),
            checkpoints=Checkpoints(job.scratch),
            progress=job.progress,
        )
    save_network(
        network,
        folder / "model.safetensors",
        architecture=architecture.name,
        width=architecture.width,
        class_names=data.class_names,
        image_shape=data.image_shape,
    )
    _write_history(folder / "history.csv", history)


def _perturbation(training: Training) -> Perturbation | None:
    adversary = training.adversary
    if adversary is None:
        return None
    # By name, so that the recipe of a standard training does not depend on the code of the attacks.
    perturb = import_module("robustfeatures.training.adversary").perturb
    return lambda network, images, labels: perturb(network, images, labels, adversary)


def _probe_set(probe: Probe, inputs: Mapping[str, Path], device: torch.device) -> ProbeSet:
    data: ImageDataset = read_dataset(inputs[probe.input], probe.split)
    labels = (torch.from_numpy(data.labels) + probe.label_shift) % data.num_classes
    return ProbeSet(probe.name, torch.from_numpy(data.float_images()).to(device), labels.to(device))


def _write_history(path: Path, history: list[HistoryRow]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HistoryRow.__annotations__)
        writer.writerows((row.epoch, row.probe, repr(row.accuracy), repr(row.loss)) for row in history)
