"""Stage derived: data sets in which robust or non-robust features have been isolated (not-bugs-2019, Section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from robustfeatures.attacks.gradients import loss_gradients, pictured
from robustfeatures.attacks.inversion import invert
from robustfeatures.attacks.projected_gradient_descent import pgd
from robustfeatures.data.dataset import ImageDataset, join_shards, read_dataset, write_shard
from robustfeatures.engine.batches import batch_size, block_rows
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.randomness import numpy_generator
from robustfeatures.errors import UserError
from robustfeatures.models.saving import load_network
from robustfeatures.pipeline.run.stages.selection import misclassified, transferring

if TYPE_CHECKING:
    from robustfeatures.derived.settings import Derived, Inversion, LossGradient, TargetedAttack, UntargetedAttack
    from robustfeatures.pipeline.run.job import Job

# Called with the steps that a batch has behind it.
Told = Callable[[int], None]
# rows, what to tell of the steps -> images float32 (n, C, H, W), on their device.
Derivation = Callable[[NDArray[np.int64], Told], torch.Tensor]


def make(parameters: Derived, inputs: Mapping[str, Path], folder: Path, job: Job) -> None:
    """Write `data.zarr` with the derived splits; starts and targets are drawn from the split that is derived.

    Its shards are the blocks that several jobs may share, each made while it is written.
    """
    network = FrozenNetwork(
        load_network(inputs["source"], job.device), precision=parameters.precision, compile=parameters.compile
    )
    splits: dict[str, ImageDataset] = {}
    shard_rows: dict[str, int] = {}
    # What follows from one gradient counts as one step.
    made = Made(job, getattr(parameters.method, "steps", 1))
    for split in parameters.splits:
        original = read_dataset(inputs["data"], split, in_memory=False)
        splits[split] = _split(network, original, parameters, made)
        size = batch_size(job.device, original.image_shape)
        shard_rows[split] = block_rows(len(splits[split]), size, original.image_shape)
    # What another kind of device has made is cut in another way.
    blocks = {
        f"{job.device.type}-{split}-{number}": (split, number)
        for split, dataset in splits.items()
        for number in range(-(-len(dataset) // shard_rows[split]))
    }
    made.expected = made.steps * sum(
        min(shard_rows[split], len(splits[split]) - number * shard_rows[split])
        for split, number in map(blocks.__getitem__, job.blocks.missing(list(blocks)))
    )

    def shard(name: str, path: Path) -> None:
        split, number = blocks[name]
        write_shard(path, split, number, splits[split].images, shard_rows[split])

    job.blocks.finish(list(blocks), shard)
    if job.blocks.whole:
        shards = {place: job.blocks.path(name) for name, place in blocks.items()}
        join_shards(folder / "data.zarr", splits, shard_rows, shards)


def _split(network: FrozenNetwork, original: ImageDataset, parameters: Derived, made: Made) -> ImageDataset:
    match parameters.method.kind:
        case "inversion":
            return _inverted(network, original, parameters.method, parameters.seed, made)
        case "targeted-attack":
            return _attacked(network, original, parameters.method, parameters.seed, made)
        case "untargeted-attack" | "loss-gradient":
            return _away_from_label(network, original, parameters.method, made)
        case "errors":
            return misclassified(network, original, made.job)
        case "transferring":
            return transferring(network, original, parameters.method, made.job)


@dataclass
class Made:
    """How far a job is with the images that it is to make, each of which takes `steps`: in images times steps."""

    job: Job
    steps: int
    expected: int = 0
    done: int = 0

    def batch(self, images: int) -> Told:
        """What is to be told of the steps of a batch of so many images."""
        before = self.done

        def told(steps: int) -> None:
            self.done = before + images * steps
            self.job.progress(self.done, max(self.expected, self.done))

        return told


class DerivedImages:
    """Derived images (N, C, H, W), float32 in [0, 1], made where they are asked for."""

    def __init__(self, original: ImageDataset, derivation: Derivation, made: Made) -> None:
        self.shape = original.images.shape
        self.dtype: np.dtype[Any] = np.dtype(np.float32)
        self.derivation = derivation
        self.made = made

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[np.float32]:
        found = np.empty((len(rows), *self.shape[1:]), np.float32)
        size = batch_size(self.made.job.device, self.shape[1:])
        with self.made.job.computing():
            for first in range(0, len(rows), size):
                batch = rows[first : first + size]
                found[first : first + size] = self.derivation(batch, self.made.batch(len(batch))).cpu()
        return found


def targets(
    labels: NDArray[np.int64], indices: NDArray[np.int64], *, target: str | int, num_classes: int, seed: int
) -> NDArray[np.int64]:
    """The class each image is to be taken for, int64 (N,).

    "random" draws uniformly over all classes, the own one included, by seed and source index; "next" is
    (y + 1) mod C; a number is one class for all.

    Raises:
        UserError: the class number is not below `num_classes`.
    """
    if target == "random":
        drawn = [numpy_generator(seed, "target", int(index)).integers(num_classes) for index in indices]
        return np.array(drawn, dtype=np.int64)
    if target == "next":
        return (labels + 1) % num_classes
    if int(target) >= num_classes:
        raise UserError(f"method.target: class {target} is out of range, the data set has {num_classes} classes")
    return np.full_like(labels, int(target))


def _attacked(
    network: FrozenNetwork, original: ImageDataset, method: TargetedAttack, seed: int, made: Made
) -> ImageDataset:
    indices = original.provenance["source_index"]
    goal = targets(original.labels, indices, target=method.target, num_classes=original.num_classes, seed=seed)
    device = made.job.device

    def derivation(rows: NDArray[np.int64], told: Told) -> torch.Tensor:
        return pgd(
            network,
            torch.from_numpy(original.float_images(rows)).to(device),
            torch.from_numpy(goal[rows]).to(device),
            **method.arguments(),
            targeted=True,
            progress=told,
        )

    images = DerivedImages(original, derivation, made)
    return _derived(original, images, labels=goal, target=goal, start_index=np.full_like(goal, -1))


def _away_from_label(
    network: FrozenNetwork, original: ImageDataset, method: UntargetedAttack | LossGradient, made: Made
) -> ImageDataset:
    """What raises the loss of the label, which stays: a large step that way, or the direction itself."""
    device = made.job.device

    def derivation(rows: NDArray[np.int64], told: Told) -> torch.Tensor:
        images = torch.from_numpy(original.float_images(rows)).to(device)
        labels = torch.from_numpy(original.labels[rows]).to(device)
        if method.kind == "loss-gradient":
            gradients = loss_gradients(network, images, labels)
            told(1)
            return pictured(gradients, method.deviations)
        return pgd(
            network,
            images,
            labels,
            **method.arguments(),
            progress=told,
        )

    none = np.full_like(original.labels, -1)
    images = DerivedImages(original, derivation, made)
    return _derived(original, images, labels=original.labels, target=none, start_index=none)


def start_rows(original: ImageDataset, seed: int) -> NDArray[np.int64]:
    """The row (N,) of another image of the split at which each inversion starts, drawn uniformly whatever its label."""
    count = len(original)
    if count < 2:
        raise UserError("method.start: images: a split of one image has no other to start from")
    # One of the count - 1 others: a step of 1 to count - 1 round the circle.
    ahead = [
        1 + numpy_generator(seed, "start", int(index)).integers(count - 1)
        for index in original.provenance["source_index"]
    ]
    return (np.arange(count) + np.array(ahead)) % count


def noise(indices: NDArray[np.int64], image_shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    """Gaussian noise (n, C, H, W) of mean 1/2 and deviation 1/4, clipped to [0, 1]; the paper gives neither."""
    drawn = [numpy_generator(seed, "start", int(index)).normal(0.5, 0.25, image_shape) for index in indices]
    return np.clip(np.array(drawn), 0, 1).astype(np.float32)


def _inverted(network: FrozenNetwork, original: ImageDataset, method: Inversion, seed: int, made: Made) -> ImageDataset:
    indices = original.provenance["source_index"]
    chosen = None if method.start == "noise" else start_rows(original, seed)
    device = made.job.device

    def derivation(rows: NDArray[np.int64], told: Told) -> torch.Tensor:
        if chosen is None:
            start = noise(indices[rows], original.image_shape, seed)
        else:
            start = original.float_images(chosen[rows])
        return invert(
            network,
            torch.from_numpy(start).to(device),
            torch.from_numpy(original.float_images(rows)).to(device),
            step_size=method.step_size,
            steps=method.steps,
            progress=told,
        )

    none = np.full_like(indices, -1)
    start_index = none if chosen is None else indices[chosen]
    images = DerivedImages(original, derivation, made)
    return _derived(original, images, labels=original.labels, target=none, start_index=start_index)


def _derived(
    original: ImageDataset,
    images: DerivedImages,
    *,
    labels: NDArray[np.int64],
    target: NDArray[np.int64],
    start_index: NDArray[np.int64],
) -> ImageDataset:
    return ImageDataset(
        images=images,
        labels=labels,
        provenance={
            "source_index": original.provenance["source_index"],
            "source_label": original.labels,
            "start_index": start_index,
            "target": target,
        },
        class_names=original.class_names,
    )
