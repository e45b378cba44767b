"""Stage model: a network trained, in the standard way or adversarially, on an original or a derived data set."""

from __future__ import annotations

import csv
import logging
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from robustfeatures.data.dataset import ImageDataset, read_dataset
from robustfeatures.data.raw import Rows
from robustfeatures.engine.batches import batches_of
from robustfeatures.engine.randomness import numpy_generator, split_seed
from robustfeatures.models.creation import create
from robustfeatures.models.saving import load_network, save_network
from robustfeatures.pipeline.run.checkpoints import Checkpoints
from robustfeatures.training.loop import HistoryRow, train
from robustfeatures.training.probes import Measure, ProbeSet, share_right

if TYPE_CHECKING:
    from robustfeatures.models.network import Network
    from robustfeatures.pipeline.run.job import Job
    from robustfeatures.training.adversary import Attacker
    from robustfeatures.training.settings import Adversary, Model, Probe

log = logging.getLogger(__name__)


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
    with torch.random.fork_rng([job.device] if job.device.type == "cuda" else []):
        probes = [_probe_set(probe, parameters, network, data, inputs, job.device) for probe in parameters.probes]
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
            compile=parameters.compile,
            progress=job.progress,
        )
    if probes:
        job.costs["probe_seconds"] = sum(probe.seconds for probe in probes)
        log.info("probes took %.1f s of %.1f s", job.costs["probe_seconds"], job.computing_seconds)
    save_network(
        network,
        folder / "model.safetensors",
        architecture=architecture.name,
        width=architecture.width,
        class_names=data.class_names,
        image_shape=data.image_shape,
    )
    _write_history(folder / "history.csv", history)


def _perturbation(network: Network, parameters: Model) -> Attacker | None:
    adversary = parameters.training.adversary
    return None if adversary is None else _attacker(network, adversary, parameters)


def _attacker(network: Network, adversary: Adversary, parameters: Model) -> Attacker:
    # By name, so that the recipe of a standard training does not depend on the code of the attacks.
    attacker = import_module("robustfeatures.training.adversary").Attacker
    made: Attacker = attacker(network, adversary, parameters.precision, compile=parameters.compile)
    return made


def _probe_set(
    probe: Probe,
    parameters: Model,
    network: Network,
    trained_on: ImageDataset,
    inputs: Mapping[str, Path],
    device: torch.device,
) -> ProbeSet:
    data = _drawn(read_dataset(inputs[probe.input], probe.split, in_memory=False), probe.images)
    labels = (torch.from_numpy(data.labels) + probe.label_shift) % data.num_classes
    attack = None if probe.attack is None else _attacker(network, probe.attack, parameters)
    return ProbeSet(
        probe.name,
        batches_of(data, device),
        labels.to(device),
        precision=parameters.precision,
        every=probe.every,
        attack=attack,
        judges={role: load_network(inputs[role], device) for role in probe.transfer_to},
        measure=share_right if probe.measure == "accuracy" else _correlation(trained_on, data),
    )


def _drawn(data: ImageDataset, images: int | None) -> ImageDataset:
    """So many images of a split, drawn without regard to the model; all of them where it has no more."""
    if images is None or images >= len(data):
        return data
    rows = np.sort(numpy_generator(0, "probe").choice(len(data), images, replace=False))
    provenance = {name: column[rows] for name, column in data.provenance.items()}
    return ImageDataset(Rows(data.images, rows), data.labels[rows], provenance, data.class_names)


def _correlation(trained_on: ImageDataset, data: ImageDataset) -> Measure:
    # By name, as above.
    module = import_module("robustfeatures.training.performance_correlation")
    simple = module.simple_predictions(trained_on.float_images(), trained_on.labels, data.float_images())

    def measure(predicted: torch.Tensor, labels: torch.Tensor) -> float:
        found: float = module.performance_correlation(
            predicted.cpu().numpy(), labels.cpu().numpy(), simple, data.num_classes
        )
        return found

    return measure


def _write_history(path: Path, history: list[HistoryRow]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HistoryRow.__annotations__)
        writer.writerows((row.epoch, row.probe, repr(row.value), repr(row.loss), row.images) for row in history)
