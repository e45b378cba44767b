"""Estimates of a job's run time and memory, from the size of its data, its steps and its network.

seconds = START + SAFETY_FACTOR * (images / READING_RATE + passes * images * operations * 3 / rate / parts)

One pass is a forward and a backward through the network: three times the operations of a forward. The images are those
of the splits that the job uses. The rate is that of a GPU or of one processor core. The second try asks for twice the
time, the third for three times, and so on. A training goes on from its checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING

from robustfeatures.attacks.evaluating.registry import find_attack
from robustfeatures.attacks.evaluating.settings import Evaluation
from robustfeatures.data.settings import Data
from robustfeatures.derived.registry import METHODS
from robustfeatures.derived.settings import Derived
from robustfeatures.models.registry import find_network
from robustfeatures.models.settings import Architecture
from robustfeatures.pipeline.plan.sizes import original_data_size
from robustfeatures.pipeline.study.parameters import Measurement
from robustfeatures.training.settings import Model, Probe

if TYPE_CHECKING:
    from robustfeatures.pipeline.plan.recipe import Recipe

START_SECONDS = 300.0
SAFETY_FACTOR = 2.0
# Floating point operations per second of convolutional networks: assumed, not measured.
GPU_RATE = 1e13
CORE_RATE = 15e9
# Images per second when reading and writing, for every network: assumed too.
READING_RATE = 200.0

# Only the module of a measurement knows how much it computes, so that all measurements ask for the same.
MEASUREMENT_SECONDS = 1800.0
MEASUREMENT_MEGABYTES = 8000

BASE_MEGABYTES = 3000
# Up to this size a split is held as float32, beside its raw form; a larger one is streamed (engine/batches.py).
MOST_IMAGE_MEGABYTES = 4 * 1024
MEMORY_COPIES = 2.5


@dataclass(frozen=True)
class Estimate:
    """Images to read, floating point operations, other seconds; memory in megabytes of 10^6 bytes."""

    images: float
    operations: float
    memory_mb: int
    other_seconds: float = 0.0

    def seconds(self, *, gpu: bool, threads: int, parts: int) -> float:
        """Run time of one of `parts`. Each part reads all images, and so does the job that joins the parts."""
        rate = GPU_RATE if gpu else CORE_RATE * threads
        computing = self.images / READING_RATE + self.operations / rate / parts
        return START_SECONDS + self.other_seconds + SAFETY_FACTOR * computing

    def minutes(self, *, gpu: bool, threads: int, parts: int) -> int:
        """The run time in whole minutes, rounded up."""
        return ceil(self.seconds(gpu=gpu, threads=threads, parts=parts) / 60)


def forward_operations(architecture: Architecture, image_shape: tuple[int, int, int]) -> float:
    """Floating point operations of one image's forward pass. They grow with the pixels and with the width squared."""
    network = find_network(architecture.name)
    wider = 1.0 if architecture.width is None or network.width is None else (architecture.width / network.width) ** 2
    return network.operations * wider * prod(image_shape[1:]) / network.side**2


def estimate(recipe: Recipe) -> Estimate:
    """The estimate for one artifact. Where the images cannot be counted, only the start of the job is estimated."""
    if isinstance(recipe.parameters, Measurement):
        return Estimate(0, 0, MEASUREMENT_MEGABYTES, MEASUREMENT_SECONDS)
    size = original_data_size(recipe)
    if size is None or isinstance(recipe.parameters, Data):
        return Estimate(0 if size is None else sum(size.images.values()), 0, BASE_MEGABYTES)
    passes = _passes(recipe, size.images)
    megabytes = min(4 * sum(size.images.values()) * prod(size.shape) / 1e6, MOST_IMAGE_MEGABYTES)
    operations = passes * 3 * forward_operations(_network(recipe), size.shape)
    return Estimate(_images_read(recipe, size.images), operations, ceil(BASE_MEGABYTES + MEMORY_COPIES * megabytes))


def _network(recipe: Recipe) -> Architecture:
    if isinstance(recipe.parameters, Model):
        return recipe.parameters.architecture
    model = recipe.inputs["source" if isinstance(recipe.parameters, Derived) else "model"].parameters
    assert isinstance(model, Model)
    return model.architecture


def _passes(recipe: Recipe, images: Mapping[str, int]) -> float:
    """How many images go forward and backward through the network; one that does so twice counts twice."""
    match recipe.parameters:
        case Model(training=training, probes=probes):
            attacked = training.adversary.steps if training.adversary is not None else 0
            probed = sum(_probe_passes(probe, recipe.inputs[probe.input]) for probe in probes)
            return training.epochs * ((1 + attacked) * images.get("train", 0) + probed)
        case Derived(method=method, splits=splits):
            return METHODS[method.kind].passes(method) * sum(images.get(split, 0) for split in splits)
        case Evaluation(split=split, attacks=attacks, eps=eps, label_shifts=label_shifts):
            radii = sum(radius > 0 for radius in eps)
            attacking = sum(find_attack(attack.kind).passes(attack, radii) for attack in attacks)
            return len(label_shifts) * (1 + attacking) * images.get(split, 0)
    return 0


def _probe_passes(probe: Probe, data: Recipe) -> float:
    """The passes of a probe per epoch. A prediction is a forward alone, so it counts a third."""
    size = original_data_size(data)
    count = 0 if size is None else size.images.get(probe.split, 0)
    steps = probe.attack.steps if probe.attack is not None else 0
    return min(count, probe.images or count) / probe.every * (steps + (1 + len(probe.transfer_to)) / 3)


def _images_read(recipe: Recipe, images: Mapping[str, int]) -> float:
    """How many images the job reads from disk. A training may read its images more than once."""
    match recipe.parameters:
        case Model(training=training):
            return sum(images.values()) + images.get("train", 0) * training.epochs / 10
        case Derived(splits=splits):
            return sum(images.get(split, 0) for split in splits)
        case Evaluation(split=split):
            return images.get(split, 0)
    return 0
