"""Estimates of a job's run time and memory, from the size of its data, its steps and its network.

seconds = START + SAFETY_FACTOR * (images / READING_RATE + forwards * images * operations / rate / parts / processes)

The work for an image is counted in forward passes through the network. A backward pass to the image costs as much as a
forward, so a step of an attack counts 2. A backward pass to the weights costs as much again, so an update counts 3. The
images are those of the splits that the job uses. The rate is that of a GPU, in the precision that the study asks for,
or of one processor core. A training on several GPUs has a process for each, and each holds all images. The second try
asks for twice the time, the third for three times, and so on. A training goes on from its checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf, prod
from typing import TYPE_CHECKING

from robustfeatures.attacks.evaluating.registry import ATTACKS
from robustfeatures.attacks.evaluating.settings import Evaluation
from robustfeatures.data.settings import Data
from robustfeatures.derived.registry import METHODS
from robustfeatures.derived.settings import Derived
from robustfeatures.measurements.registry import ATTACK_STEP, FORWARDS
from robustfeatures.models.registry import find_network
from robustfeatures.models.settings import Architecture, Pretrained
from robustfeatures.pipeline.plan.recipe import find_architecture
from robustfeatures.pipeline.plan.sizes import original_data_size
from robustfeatures.pipeline.study.parameters import Measurement
from robustfeatures.training.settings import Model, Probe

if TYPE_CHECKING:
    from robustfeatures.engine.settings import Precision
    from robustfeatures.pipeline.plan.recipe import Recipe

START_SECONDS = 300.0
SAFETY_FACTOR = 2.0
# Floating point operations per second of convolutional networks: assumed. `docs/speed.md` has those of an H200.
GPU_RATES: Mapping[Precision, float] = {"float32": 1e13, "bfloat16": 1e14}
CORE_RATE = 15e9
# A job with less work does not need a GPU: a processor core takes less than two hours for it.
LEAST_GPU_OPERATIONS = 1e14
# A measurement that does not tell its work counts as so many forward passes for each image.
MEASUREMENT_FORWARDS = 100
# The work of one image in forward passes; that of a step of an attack stands with the measurements.
UPDATE = 3
# Images per second when reading and writing, for every network: assumed too.
READING_RATE = 200.0

# Measurements ask for this, and those of `measurements/registry.py` for the time of their attacks too.
MEASUREMENT_SECONDS = 1800.0
MEASUREMENT_MEGABYTES = 8000

BASE_MEGABYTES = 3000
# Up to this size a split is held as float32, beside its raw form; a larger one is streamed (engine/batches.py).
MOST_IMAGE_MEGABYTES = 4 * 1024
MEMORY_COPIES = 2.5
# The number of shards of a large split (store/datasets.py).
SHARDS = 40


@dataclass(frozen=True)
class Estimate:
    """Images to read, floating point operations, other seconds; memory in megabytes of 10^6 bytes.

    `updating` are those of the operations that update weights; the others attack or evaluate. The operations are of
    this `precision`. `processes` share them; `memory_mb` is that of all.
    """

    images: float
    operations: float
    memory_mb: int
    other_seconds: float = 0.0
    updating: float = 0.0
    precision: Precision = "float32"
    processes: int = 1

    def seconds(self, *, gpu: bool, threads: int, parts: int) -> float:
        """Run time of one of `parts`. Each part reads all images, and so does the job that joins the parts."""
        rate = assumed_rate(gpu=gpu, threads=threads, precision=self.precision) * parts * self.processes
        computing = self.images / READING_RATE + self.operations / rate
        return START_SECONDS + self.other_seconds + SAFETY_FACTOR * computing

    def minutes(self, *, gpu: bool, threads: int, parts: int) -> int:
        """The run time in whole minutes, rounded up."""
        return ceil(self.seconds(gpu=gpu, threads=threads, parts=parts) / 60)


def assumed_rate(*, gpu: bool, threads: int, precision: Precision) -> float:
    """Floating point operations per second of a job. Not every processor is faster in half precision."""
    return GPU_RATES[precision] if gpu else CORE_RATE * threads


def forward_operations(architecture: Architecture, image_shape: tuple[int, int, int]) -> float:
    """Floating point operations of one image's forward pass. They grow with the pixels and with the width squared."""
    network = find_network(architecture.name)
    wider = 1.0 if architecture.width is None or network.width is None else (architecture.width / network.width) ** 2
    return network.operations * wider * prod(image_shape[1:]) / network.side**2


def estimate(recipe: Recipe) -> Estimate:
    """The estimate for one artifact. Where the images cannot be counted, only the start of the job is estimated."""
    if isinstance(recipe.parameters, Measurement):
        return _estimate_measurement(recipe, recipe.parameters)
    size, processes = original_data_size(recipe), find_processes(recipe)
    if size is None:
        return Estimate(0, 0, processes * BASE_MEGABYTES, processes=processes)
    megabytes = 4 * sum(size.images.values()) * prod(size.shape) / 1e6
    if isinstance(recipe.parameters, Data):
        # A shard of uint8 images is in memory twice while it is written, because zarr copies it.
        held = 2 * megabytes / 4 / SHARDS
        # An .npz file is read whole.
        held += megabytes if recipe.parameters.source == "npz" else 0
        return Estimate(sum(size.images.values()), 0, ceil(BASE_MEGABYTES + held))
    per_forward = forward_operations(network_of(recipe), size.shape)
    return Estimate(
        _images_read(recipe, size.images, streamed=megabytes > MOST_IMAGE_MEGABYTES),
        _forwards(recipe, size.images) * per_forward,
        ceil(processes * (BASE_MEGABYTES + MEMORY_COPIES * min(megabytes, MOST_IMAGE_MEGABYTES))),
        updating=UPDATE * _updates(recipe, size.images) * per_forward,
        precision="float32" if isinstance(recipe.parameters, Pretrained) else recipe.parameters.precision,
        processes=processes,
    )


def _estimate_measurement(recipe: Recipe, parameters: Measurement) -> Estimate:
    """The estimate for a measurement; one that does not tell its work has MEASUREMENT_SECONDS alone."""
    size = original_data_size(recipe) if parameters.module in FORWARDS else None
    if size is None:
        return Estimate(0, 0, MEASUREMENT_MEGABYTES, MEASUREMENT_SECONDS)
    forwards = FORWARDS[parameters.module](parameters.settings) * size.images.get(
        parameters.settings.get("split", "test"), 0
    )
    return Estimate(
        0,
        forwards * forward_operations(network_of(recipe), size.shape),
        MEASUREMENT_MEGABYTES,
        MEASUREMENT_SECONDS,
        precision=parameters.settings["precision"],
    )


def find_processes(recipe: Recipe) -> int:
    """The number of processes that make an artifact: one, but for a training on several GPUs."""
    return (isinstance(recipe.parameters, Model) and recipe.parameters.training.gpus_per_training) or 1


def needs_gpu(recipe: Recipe) -> bool:
    """Whether a job for this artifact has so much work that it uses a GPU, if there is one.

    A training that asks for several GPUs uses them. So does a job whose images cannot be counted.
    """
    match recipe.parameters:
        case Data() | Pretrained():
            return False
        case Measurement(module=module) if module not in FORWARDS:
            return any(_measured_operations(each) >= LEAST_GPU_OPERATIONS for each in find_networks(recipe))
    if original_data_size(recipe) is None or find_processes(recipe) > 1:
        return True
    return estimate(recipe).operations >= LEAST_GPU_OPERATIONS


def find_networks(recipe: Recipe) -> list[Recipe]:
    """The networks among the inputs of a recipe. A measurement of a toy model has none."""
    return [each for each in recipe.inputs.values() if find_architecture(each.parameters) is not None]


def _measured_operations(network: Recipe) -> float:
    """The operations of a measurement of this network, on as many images as the data set that it was trained on."""
    size = original_data_size(network)
    if size is None:
        return inf
    per_forward = forward_operations(network_of(network), size.shape)
    return MEASUREMENT_FORWARDS * sum(size.images.values()) * per_forward


def network_of(recipe: Recipe) -> Architecture:
    """The network that a recipe trains, reads, attacks, evaluates or measures."""
    match recipe.parameters:
        case Derived():
            made = recipe.inputs["source"]
        case Evaluation():
            made = recipe.inputs["model"]
        case Measurement():
            made = recipe.inputs.get("source") or recipe.inputs["model"]
        case _:
            made = recipe
    architecture = find_architecture(made.parameters)
    assert architecture is not None
    return architecture


def _forwards(recipe: Recipe, images: Mapping[str, int]) -> float:
    """The work of a recipe in forward passes of one image."""
    match recipe.parameters:
        case Model(training=training, probes=probes):
            steps = training.adversary.steps if training.adversary is not None else 0
            attacking = ATTACK_STEP * steps * (1 - training.natural)
            probing = sum(_probe_forwards(probe, recipe.inputs[probe.input], training.epochs) for probe in probes)
            return _updates(recipe, images) * (UPDATE + attacking) + probing
        case Derived(method=method, splits=splits):
            return METHODS[method.kind].forwards(method) * sum(images.get(split, 0) for split in splits)
        case Evaluation(split=split, attacks=attacks, eps=eps, label_shifts=label_shifts):
            radii = sum(radius > 0 for radius in eps)
            attacking = sum(ATTACKS[attack.kind].forwards(attack, radii) for attack in attacks)
            # The images are classified once without an attack.
            return (1 + len(label_shifts) * attacking) * images.get(split, 0)
    return 0


def _updates(recipe: Recipe, images: Mapping[str, int]) -> float:
    """How many images go through the network to update its weights."""
    if isinstance(recipe.parameters, Model):
        return recipe.parameters.training.epochs * images.get("train", 0)
    return 0


def _probe_forwards(probe: Probe, data: Recipe, epochs: int) -> float:
    """The work of a probe in forward passes of one image: its attack, then a prediction by each network."""
    size = original_data_size(data)
    count = 0 if size is None else size.images.get(probe.split, 0)
    steps = probe.attack.steps if probe.attack is not None else 0
    times = ceil(epochs / probe.every)
    return times * min(count, probe.images or count) * (ATTACK_STEP * steps + 1 + len(probe.transfer_to))


def _images_read(recipe: Recipe, images: Mapping[str, int], *, streamed: bool) -> float:
    """How many images the job reads from disk. A training whose images do not fit in memory reads them again."""
    match recipe.parameters:
        case Model(training=training):
            return sum(images.values()) + streamed * images.get("train", 0) * training.epochs / 10
        case Derived(splits=splits):
            return sum(images.get(split, 0) for split in splits)
        case Evaluation(split=split):
            return images.get(split, 0)
    return 0
