"""Create, normalise and train a network, and measure its probes meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.raw import SelectedImages
from robustfeatures.engine.batches import load_batches
from robustfeatures.engine.randomness import derive_seed, make_generator
from robustfeatures.models.creation import create
from robustfeatures.training import loop
from robustfeatures.training.loop import Checkpoints, HistoryRow
from robustfeatures.training.probes import Measure, ProbeSet, fraction_correct

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run
    from robustfeatures.models.network import Network
    from robustfeatures.training.adversary import Attacker
    from robustfeatures.training.settings import Adversary, Model, Probe


@dataclass(frozen=True)
class TrainedModel:
    """A trained network in eval mode, the values of its probes over time, and the seconds that the probes took."""

    network: Network
    history: list[HistoryRow]
    probe_seconds: float


def train_model(
    parameters: Model,
    run: Run,
    checkpoints: AbstractContextManager[Checkpoints],
    train: Callable[..., list[HistoryRow]] = loop.train,
) -> TrainedModel:
    """Train a network with these parameters on the train split of the input "data".

    Only the training itself runs inside the context `checkpoints`. A resumed run repeats the preparation before it.
    In each of several processes `train` is `distributed.train`, and the result is the same in all of them.
    """
    data = run.dataset("data", "train")
    network = initialise_network(parameters, data).to(run.device)
    with torch.random.fork_rng([run.device] if run.device.type == "cuda" else []):
        probes = [_build_probe_set(probe, parameters, network, run) for probe in parameters.probes]
    images = load_batches(data, run.device)
    adversary = parameters.training.adversary
    perturbation = None if adversary is None else _load_attacker(network, adversary, parameters)
    with checkpoints as entered_checkpoints:
        history = train(
            network,
            images,
            torch.from_numpy(data.labels).to(run.device),
            parameters.training,
            seed=parameters.seed,
            precision=parameters.precision,
            probes=probes,
            perturbation=perturbation,
            checkpoints=entered_checkpoints,
            compile=parameters.compile,
            progress=run.progress,
        )
    return TrainedModel(network, history, sum(probe.seconds for probe in probes))


def initialise_network(parameters: Model, data: ImageDataset) -> Network:
    """Create the network with weights drawn from the seed, and normalise pixels by the statistics of the split."""
    torch.manual_seed(derive_seed(parameters.seed, "initialisation"))
    architecture = parameters.architecture
    network = create(
        architecture.name, num_classes=data.num_classes, image_shape=data.image_shape, width=architecture.width
    )
    mean, std = data.channel_statistics()
    network.set_normalisation(torch.from_numpy(mean), torch.from_numpy(std))
    return network


def _load_attacker(network: Network, adversary: Adversary, parameters: Model) -> Attacker:
    # Imported by name, so that the recipe of a standard training does not depend on the code of the attacks.
    attacker_class = import_module("robustfeatures.training.adversary").Attacker
    attacker: Attacker = attacker_class(network, adversary, parameters.precision, compile=parameters.compile)
    return attacker


def _build_probe_set(probe: Probe, parameters: Model, network: Network, run: Run) -> ProbeSet:
    split = run.dataset(probe.input, probe.split)
    rows = _draw_rows(len(split), probe.images)
    data = split if rows is None else _select(split, rows)
    labels = (torch.from_numpy(data.labels) + probe.label_shift) % data.num_classes
    attack = None if probe.attack is None else _load_attacker(network, probe.attack, parameters)
    return ProbeSet(
        probe.name,
        load_batches(data, run.device),
        labels.to(run.device),
        precision=parameters.precision,
        every=probe.every,
        attack=attack,
        transfer_models={role: run.network(role) for role in probe.transfer_to},
        measure=_build_measure(probe, data, rows, run),
    )


def _draw_rows(count: int, images: int | None) -> NDArray[np.int64] | None:
    """Draw `images` of `count` images, the same for every model; None if there are no more."""
    if images is None or images >= count:
        return None
    return np.sort(make_generator(0, "probe").choice(count, images, replace=False))


def _select(data: ImageDataset, rows: NDArray[np.int64]) -> ImageDataset:
    provenance = {name: column[rows] for name, column in data.provenance.items()}
    return ImageDataset(SelectedImages(data.images, rows), data.labels[rows], provenance, data.class_names)


def _build_measure(probe: Probe, data: ImageDataset, rows: NDArray[np.int64] | None, run: Run) -> Measure:
    if probe.simple_classifier is None:
        return fraction_correct
    # Imported by name, so that other trainings do not depend on its code.
    module = import_module("robustfeatures.training.performance_correlation")
    simple = np.array([int(row["prediction"]) for row in run.rows(probe.simple_classifier)])
    simple = simple if rows is None else simple[rows]

    def measure(predicted: torch.Tensor, labels: torch.Tensor) -> float:
        correlation: float = module.performance_correlation(
            predicted.cpu().numpy(), labels.cpu().numpy(), simple, data.num_classes
        )
        return correlation

    return measure
