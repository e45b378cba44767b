"""A network from its parameters and its data: created, normalised, trained, with what probes found meanwhile."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
import torch

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.raw import SelectedImages
from robustfeatures.engine.batches import load_batches
from robustfeatures.engine.randomness import derive_seed, make_generator
from robustfeatures.models.creation import create
from robustfeatures.training.loop import Checkpoints, HistoryRow, train
from robustfeatures.training.probes import Measure, ProbeSet, share_right

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run
    from robustfeatures.models.network import Network
    from robustfeatures.training.adversary import Attacker
    from robustfeatures.training.settings import Adversary, Model, Probe


@dataclass(frozen=True)
class Trained:
    """A trained network in eval mode, the value of each probe over time, and the seconds that probes took."""

    network: Network
    history: list[HistoryRow]
    probe_seconds: float


def trained(parameters: Model, run: Run, checkpoints: AbstractContextManager[Checkpoints]) -> Trained:
    """The network that the parameters describe, trained on the train split of the input "data".

    `checkpoints` are entered for the training alone: what comes before it is done again by a run that goes on.
    """
    data = run.dataset("data", "train")
    network = initial_network(parameters, data).to(run.device)
    with torch.random.fork_rng([run.device] if run.device.type == "cuda" else []):
        probes = [_probe_set(probe, parameters, network, data, run) for probe in parameters.probes]
    images = load_batches(data, run.device)
    adversary = parameters.training.adversary
    perturbation = None if adversary is None else _attacker(network, adversary, parameters)
    with checkpoints as kept:
        history = train(
            network,
            images,
            torch.from_numpy(data.labels).to(run.device),
            parameters.training,
            seed=parameters.seed,
            precision=parameters.precision,
            probes=probes,
            perturbation=perturbation,
            checkpoints=kept,
            compile=parameters.compile,
            progress=run.progress,
        )
    return Trained(network, history, sum(probe.seconds for probe in probes))


def initial_network(parameters: Model, data: ImageDataset) -> Network:
    """The network before its first step: weights drawn from the seed, pixels normalised as those of the split are."""
    torch.manual_seed(derive_seed(parameters.seed, "initialisation"))
    architecture = parameters.architecture
    network = create(
        architecture.name, num_classes=data.num_classes, image_shape=data.image_shape, width=architecture.width
    )
    mean, std = data.channel_statistics()
    network.set_normalisation(torch.from_numpy(mean), torch.from_numpy(std))
    return network


def _attacker(network: Network, adversary: Adversary, parameters: Model) -> Attacker:
    # By name, so that the recipe of a standard training does not depend on the code of the attacks.
    attacker = import_module("robustfeatures.training.adversary").Attacker
    made: Attacker = attacker(network, adversary, parameters.precision, compile=parameters.compile)
    return made


def _probe_set(probe: Probe, parameters: Model, network: Network, trained_on: ImageDataset, run: Run) -> ProbeSet:
    data = _drawn(run.dataset(probe.input, probe.split), probe.images)
    labels = (torch.from_numpy(data.labels) + probe.label_shift) % data.num_classes
    attack = None if probe.attack is None else _attacker(network, probe.attack, parameters)
    return ProbeSet(
        probe.name,
        load_batches(data, run.device),
        labels.to(run.device),
        precision=parameters.precision,
        every=probe.every,
        attack=attack,
        judges={role: run.network(role) for role in probe.transfer_to},
        measure=share_right if probe.measure == "accuracy" else _correlation(trained_on, data),
    )


def _drawn(data: ImageDataset, images: int | None) -> ImageDataset:
    """So many images of a split, drawn without regard to the model; all of them where it has no more."""
    if images is None or images >= len(data):
        return data
    rows = np.sort(make_generator(0, "probe").choice(len(data), images, replace=False))
    provenance = {name: column[rows] for name, column in data.provenance.items()}
    return ImageDataset(SelectedImages(data.images, rows), data.labels[rows], provenance, data.class_names)


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
