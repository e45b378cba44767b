"""Stage derived: data sets in which robust or non-robust features have been isolated (not-bugs-2019, Section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from robustfeatures.attacks.inversion import invert
from robustfeatures.attacks.pgd import pgd
from robustfeatures.data.dataset import ImageDataset, join_shards, read_dataset, write_shard
from robustfeatures.data.raw import Rows
from robustfeatures.engine.batches import batch_size, batches_of, block_rows
from robustfeatures.engine.prepared import Prepared
from robustfeatures.errors import UserError
from robustfeatures.models.saving import load_network
from robustfeatures.randomness import numpy_generator

if TYPE_CHECKING:
    from robustfeatures.jobs import Job
    from robustfeatures.recipes.parameters import Derived, Inversion, TargetedAttack, Transferring

# rows -> images float32 (n, C, H, W), on their device.
Derivation = Callable[[NDArray[np.int64]], torch.Tensor]


def make(parameters: Derived, inputs: Mapping[str, Path], folder: Path, job: Job) -> None:
    """Write `data.zarr` with the derived splits; starts and targets are drawn from the split that is derived.

    Its shards are the blocks that several jobs may share, each made while it is written.
    """
    network = Prepared(load_network(inputs["source"], job.device), precision=parameters.precision)
    splits: dict[str, ImageDataset] = {}
    shard_rows: dict[str, int] = {}
    made = Made(job)
    for split in parameters.splits:
        original = read_dataset(inputs["data"], split, in_memory=False)
        match parameters.method.kind:
            case "inversion":
                splits[split] = _inverted(network, original, parameters.method, parameters.seed, made)
            case "targeted-attack":
                splits[split] = _attacked(network, original, parameters.method, parameters.seed, made)
<<<<<<< HEAD
            case "errors":
                splits[split] = misclassified(network, original, job)
=======
            case "transferring":
                splits[split] = transferring(network, original, parameters.method, job)
>>>>>>> refs/h/pathways
        size = batch_size(job.device, original.image_shape)
        shard_rows[split] = block_rows(len(splits[split]), size, original.image_shape)
    # What another kind of device has made is cut in another way.
    blocks = {
        f"{job.device.type}-{split}-{number}": (split, number)
        for split, dataset in splits.items()
        for number in range(-(-len(dataset) // shard_rows[split]))
    }
    made.expected = sum(
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


@dataclass
class Made:
    """How many of the images that a job is to make are there."""

    job: Job
    expected: int = 0
    done: int = 0

    def add(self, count: int) -> None:
        """`count` images more."""
        self.done += count
        self.job.progress(self.done, max(self.expected, self.done))


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
                found[first : first + size] = self.derivation(batch).cpu()
                self.made.add(len(batch))
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


def _attacked(network: Prepared, original: ImageDataset, method: TargetedAttack, seed: int, made: Made) -> ImageDataset:
    indices = original.provenance["source_index"]
    goal = targets(original.labels, indices, target=method.target, num_classes=original.num_classes, seed=seed)
    device = made.job.device

    def derivation(rows: NDArray[np.int64]) -> torch.Tensor:
        return pgd(
            network,
            torch.from_numpy(original.float_images(rows)).to(device),
            torch.from_numpy(goal[rows]).to(device),
            norm=method.norm,
            eps=method.eps,
            step_size=method.step_size,
            steps=method.steps,
            targeted=True,
        )

    images = DerivedImages(original, derivation, made)
    return _derived(original, images, labels=goal, target=goal, start_index=np.full_like(goal, -1))


<<<<<<< HEAD
def misclassified(network: Prepared, original: ImageDataset, job: Job) -> ImageDataset:
    """The images whose predicted class is not their label, labelled with it, in their order; none is changed.

    Raises:
        UserError: the network misclassifies none.
=======
def transferring(network: Prepared, original: ImageDataset, method: Transferring, job: Job) -> ImageDataset:
    """The images that the network takes for their label or, by the method, those that it does not; in their order.

    Raises:
        UserError: there is none.
>>>>>>> refs/h/pathways
    """
    images = batches_of(original, job.device)
    predicted = np.empty_like(original.labels)
    with job.computing(), torch.no_grad():
        for rows, batch in images.batches(torch.arange(len(original)), batch_size(job.device, original.image_shape)):
            predicted[rows.cpu().numpy()] = network(batch).argmax(dim=1).cpu().numpy()
<<<<<<< HEAD
    wrong = np.flatnonzero(predicted != original.labels)
    if not len(wrong):
        raise UserError(f"method.errors: the source classifies all {len(original)} images right")
    none = np.full_like(wrong, -1)
    return ImageDataset(
        images=Rows(original.images, wrong),
        labels=predicted[wrong],
        provenance={
            "source_index": original.provenance["source_index"][wrong],
            "source_label": original.labels[wrong],
            "start_index": none,
            "target": none,
        },
        class_names=original.class_names,
    )
=======
    kept = np.flatnonzero((predicted == original.labels) == method.transfers)
    if not len(kept):
        found = "none" if method.transfers else "all"
        raise UserError(f"method.transfers: {found} of the {len(original)} images transfer to the source")
    provenance = {name: column[kept] for name, column in original.provenance.items()}
    return ImageDataset(Rows(original.images, kept), original.labels[kept], provenance, original.class_names)
>>>>>>> refs/h/pathways


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


def _inverted(network: Prepared, original: ImageDataset, method: Inversion, seed: int, made: Made) -> ImageDataset:
    indices = original.provenance["source_index"]
    chosen = None if method.start == "noise" else start_rows(original, seed)
    device = made.job.device

    def derivation(rows: NDArray[np.int64]) -> torch.Tensor:
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
