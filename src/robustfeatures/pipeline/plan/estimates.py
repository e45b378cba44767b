"""What a job will ask of its machine: run time and memory from data size, steps and network, before anything is known.

seconds = START + SAFETY * (images / READING_RATE + passes * images * operations * 3 / rate / parts), where one pass is
a forward and a backward through the network (three times the operations of a forward), and the rate is what a GPU, or
one processor core, is taken to do. The second try asks for twice the time, the third for three times, and so on; a
training goes on from its checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING

from robustfeatures.attacks.evaluating.settings import PGD, Attack, AutoAttack, CarliniWagner, Evaluation, Noise
from robustfeatures.data.settings import Concatenate, Data, Subset
from robustfeatures.derived.settings import (
    Derived,
    Errors,
    Inversion,
    LossGradient,
    TargetedAttack,
    Transferring,
    UntargetedAttack,
)
from robustfeatures.models.settings import Architecture
from robustfeatures.pipeline.study.parameters import Measurement
from robustfeatures.training.settings import Model, Probe

if TYPE_CHECKING:
    from robustfeatures.pipeline.plan.recipe import Recipe

START_SECONDS = 300.0
SAFETY = 2.0
# Floating point operations per second that networks of convolutions are taken to reach: assumed, not measured.
GPU_RATE = 1e13
CORE_RATE = 15e9
# Images per second that reading and writing are taken to reach, whatever the network: assumed too.
READING_RATE = 200.0

# What a measurement is given: what it computes is known to its module alone.
MEASURING_SECONDS = 1800.0
MEASURING_MEGABYTES = 8000

# Passes of the parts of AutoAttack for each radius: 100 iterations for each of nine targets; FAB also goes forward.
AUTOATTACK = {"apgd-ce": 100.0, "apgd-t": 900.0, "fab-t": 1200.0}

BASE_MEGABYTES = 3000
# A split is held as float32 up to this size, and streamed beyond it (engine/batches.py); its raw form lies beside it.
MOST_IMAGE_MEGABYTES = 4 * 1024
COPIES = 2.5

# Floating point operations of one forward of one image (twice the multiply-adds), at this side and width.
OPERATIONS = {
    "densenet121": (1.78e9, 32, 64),
    "inception-v3": (6.92e9, 32, None),
    "linear": (6.1e4, 32, None),
    "mnist-cnn": (2.78e7, 28, 32),
    "resnet-4x5": (1.85e8, 32, 16),
    "resnet18": (1.11e9, 32, 64),
    "resnet50": (2.60e9, 32, 64),
    "resnet50-imagenet": (8.17e9, 224, None),
    "small-cnn": (1.67e5, 8, 16),
    "two-layer-relu": (3.2e6, 32, 512),
    "vgg16": (6.26e8, 32, 64),
    "wrn-34-10": (1.33e10, 32, 160),
}

# Images in all splits and their shape, of the sources that say so themselves.
SIZES = {
    "cifar10": (60_000, (3, 32, 32)),
    "cifar10.1-v4": (2_021, (3, 32, 32)),
    "cifar10.1-v6": (2_000, (3, 32, 32)),
    "cinic10": (270_000, (3, 32, 32)),
    "cinic10-cifar": (60_000, (3, 32, 32)),
    "cinic10-imagenet": (210_000, (3, 32, 32)),
    "digits": (1_797, (1, 8, 8)),
    "mnist": (70_000, (1, 28, 28)),
    "restricted-imagenet": (300_000, (3, 224, 224)),
    "svhn": (99_289, (3, 32, 32)),
}
# What one's own files are taken for, at the side that `size` gives.
OWN_IMAGES = 60_000
OWN_SIDE = 64


@dataclass(frozen=True)
class Estimate:
    """Images read, operations spent on them, seconds beside these; memory in megabytes of 10^6 bytes."""

    images: float
    operations: float
    memory_mb: int
    other_seconds: float = 0.0

    def seconds(self, *, gpu: bool, threads: int, parts: int) -> float:
        """Run time of one of `parts`; all of them read, and the job that joins them reads too."""
        rate = GPU_RATE if gpu else CORE_RATE * threads
        computing = self.images / READING_RATE + self.operations / rate / parts
        return START_SECONDS + self.other_seconds + SAFETY * computing

    def minutes(self, *, gpu: bool, threads: int, parts: int) -> int:
        """The same in whole minutes, which is what clusters take."""
        return ceil(self.seconds(gpu=gpu, threads=threads, parts=parts) / 60)


def data_size(data: Data) -> tuple[int, tuple[int, int, int]]:
    """How many images (N) of which shape (C, H, W) a data set has, as far as its study tells."""
    side = data.size or OWN_SIDE
    count, shape = SIZES.get(data.source, (OWN_IMAGES, (3, side, side)))
    if data.size is not None:
        shape = (shape[0], side, side)
    for operation in data.operations:
        if isinstance(operation, Subset) and operation.split == "train":
            count = max(0, count - operation.samples) if operation.rest else min(count, operation.samples)
        if isinstance(operation, Concatenate):
            count += data_size(operation.data)[0]
    return count, shape


def forward_operations(architecture: Architecture, image_shape: tuple[int, int, int]) -> float:
    """Floating point operations of one forward of one image; they grow with the pixels, and with the width squared."""
    operations, side, width = OPERATIONS[architecture.name]
    wider = 1.0 if architecture.width is None or width is None else (architecture.width / width) ** 2
    return operations * wider * prod(image_shape[1:]) / side**2


def estimate(recipe: Recipe) -> Estimate:
    """What making one artifact takes."""
    if isinstance(recipe.parameters, Data):
        count, shape = data_size(recipe.parameters)
        return Estimate(count, 0, BASE_MEGABYTES)
    if isinstance(recipe.parameters, Measurement):
        return Estimate(0, 0, MEASURING_MEGABYTES, MEASURING_SECONDS)
    data = _data(recipe)
    count, shape = data_size(data)
    megabytes = min(4 * count * prod(shape) / 1e6, MOST_IMAGE_MEGABYTES)
    operations = count * _passes(recipe, count) * 3 * forward_operations(_network(recipe), shape)
    return Estimate(count * _readings(recipe), operations, ceil(BASE_MEGABYTES + COPIES * megabytes))


def _data(recipe: Recipe) -> Data:
    """The parameters of the original data set at the bottom of a recipe."""
    while not isinstance(recipe.parameters, Data):
        recipe = recipe.inputs["data"]
    return recipe.parameters


def _network(recipe: Recipe) -> Architecture:
    if isinstance(recipe.parameters, Model):
        return recipe.parameters.architecture
    model = recipe.inputs["source" if isinstance(recipe.parameters, Derived) else "model"].parameters
    assert isinstance(model, Model)
    return model.architecture


def _passes(recipe: Recipe, count: int) -> float:
    """How often each of `count` images goes forward and backward through the network."""
    match recipe.parameters:
        case Model(training=training, probes=probes):
            attacked = training.adversary.steps if training.adversary is not None else 0
            return training.epochs * (1 + attacked + sum(_probing(probe, count) for probe in probes))
        case Derived(method=LossGradient()):
            return 1
        case Derived(method=Errors() | Transferring()):
            return 1 / 3
        case Derived(method=Inversion() | TargetedAttack() | UntargetedAttack() as method):
            return method.steps
        case Evaluation(attacks=attacks, eps=eps, label_shifts=label_shifts):
            radii = sum(radius > 0 for radius in eps)
            return len(label_shifts) * (1 + sum(_attacking(attack, radii) for attack in attacks))
    return 0


def _probing(probe: Probe, count: int) -> float:
    """The same for a probe, per epoch; a prediction goes forward alone."""
    steps = probe.attack.steps if probe.attack is not None else 0
    share = min(1.0, (probe.images or count) / count)
    return share / probe.every * (steps + (1 + len(probe.transfer_to)) / 3)


def _attacking(attack: Attack, radii: int) -> float:
    """The same for an attack of an evaluation at so many radii, if no image falls."""
    match attack:
        case PGD(steps=steps, relative_step_sizes=sizes, random_starts=starts):
            return radii * (steps + 1) * len(sizes) * (1 + starts)
        case CarliniWagner(searches=searches, steps=steps):
            return searches * steps
        case AutoAttack(parts=parts, queries=queries):
            return radii * sum({**AUTOATTACK, "square": queries / 3}[part] for part in parts)
        case Noise(draws=draws):
            return radii * draws / 3


def _readings(recipe: Recipe) -> float:
    """How often each image is read from disk where the set does not fit into memory."""
    match recipe.parameters:
        case Model(training=training):
            return 1 + training.epochs / 10
    return 1
