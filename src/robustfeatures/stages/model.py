"""Stage model: a network trained, in the standard way or adversarially, on an original or a derived data set."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from robustfeatures.data.dataset import read_dataset
from robustfeatures.engine.batches import batches_of
from robustfeatures.models.creation import create
from robustfeatures.models.saving import save_network
from robustfeatures.randomness import split_seed
from robustfeatures.training.checkpoints import Checkpoints
from robustfeatures.training.loop import HistoryRow, Perturbation, ProbeSet, train

if TYPE_CHECKING:
    from robustfeatures.jobs import Job
    from robustfeatures.models.network import Network
    from robustfeatures.recipes.parameters import Model, Probe


def make(parameters: Model, inputs: Mapping[str, Path], folder: Path, job: Job) -> None:
    """Write `model.safetensors` and `history.csv` (one row per epoch and probe)."""
    data = read_dataset(inputs["data"], "train", in_memory=False)
    torch.manual_seed(split_seed(parameters.seed, "initialisation"))
    architecture = parameters.architecture
    network = create(
        architecture.name, num_classes=data.num_classes, image_shape=data.image_shape, width=architecture.width
    )
    mean, std = data.channel_statistics()
    network.normalise(torch.from_numpy(mean), torch.from_numpy(std))
    network.to(job.device)
    probes = [_probe_set(probe, inputs, job.device) for probe in parameters.probes]
    images = batches_of(data, job.device)
    with job.computing(), Checkpoints(job.scratch) as checkpoints:
        history = train(
            network,
            images,
            torch.from_numpy(data.labels).to(job.device),
            parameters.training,
            seed=parameters.seed,
            precision=parameters.precision,
            probes=probes,
            perturbation=_perturbation(network, parameters),
            checkpoints=checkpoints,
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


def _perturbation(network: Network, parameters: Model) -> Perturbation | None:
    if parameters.training.adversary is None:
        return None
    # By name, so that the recipe of a standard training does not depend on the code of the attacks.
    attacker = import_module("robustfeatures.training.adversary").Attacker
    made: Perturbation = attacker(network, parameters.training.adversary, parameters.precision)
    return made


def _probe_set(probe: Probe, inputs: Mapping[str, Path], device: torch.device) -> ProbeSet:
    data = read_dataset(inputs[probe.input], probe.split, in_memory=False)
    labels = (torch.from_numpy(data.labels) + probe.label_shift) % data.num_classes
    return ProbeSet(probe.name, batches_of(data, device), labels.to(device))


def _write_history(path: Path, history: list[HistoryRow]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HistoryRow.__annotations__)
        writer.writerows((row.epoch, row.probe, repr(row.accuracy), repr(row.loss)) for row in history)
