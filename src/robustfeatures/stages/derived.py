"""Stage derived: data sets in which robust or non-robust features have been isolated (not-bugs-2019, Section 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from robustfeatures.attacks.inversion import invert
from robustfeatures.attacks.pgd import pgd
from robustfeatures.data.dataset import ImageDataset, read_dataset, write_dataset
from robustfeatures.errors import UserError
from robustfeatures.models.saving import load_network
from robustfeatures.randomness import numpy_generator

if TYPE_CHECKING:
    from robustfeatures.jobs import Job
    from robustfeatures.models.network import Network
    from robustfeatures.recipes.parameters import Derived, Inversion, TargetedAttack

BATCH = 512
Progress = Callable[[float], None]


def make(parameters: Derived, inputs: Mapping[str, Path], folder: Path, job: Job) -> None:
    """Write `data.zarr` with the derived splits; starts and targets are drawn from the split that is derived."""
    network = load_network(inputs["source"], job.device)
    splits: dict[str, ImageDataset] = {}
    for number, name in enumerate(parameters.splits):
        original = read_dataset(inputs["data"], name)

        def progress(share: float, number: int = number) -> None:
            job.progress((number + share) / len(parameters.splits))

        with job.computing():
            if parameters.method.kind == "inversion":
                splits[name] = _inverted(network, original, parameters.method, parameters.seed, progress)
            else:
                splits[name] = _attacked(network, original, parameters.method, parameters.seed, progress)
    write_dataset(folder / "data.zarr", splits)


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
    network: Network, original: ImageDataset, method: TargetedAttack, seed: int, progress: Progress
) -> ImageDataset:
    indices = original.provenance["source_index"]
    goal = targets(original.labels, indices, target=method.target, num_classes=original.num_classes, seed=seed)
    images = original.float_images()
    device = network.mean.device
    found = np.empty_like(images)
    for batch in _batches(len(images), progress):
        found[batch] = pgd(
            network,
            torch.from_numpy(images[batch]).to(device),
            torch.from_numpy(goal[batch]).to(device),
            norm=method.norm,
            eps=method.eps,
            step_size=method.step_size,
            steps=method.steps,
            targeted=True,
        ).cpu()
    return _derived(original, found, labels=goal, target=goal, start_index=np.full_like(goal, -1))


def starts(original: ImageDataset, start: str, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Where each inversion starts: images float32 (N, C, H, W) in [0, 1] and their source indices (-1 for noise).

    "images" draws another image of the split, uniformly and whatever its label; "noise" draws Gaussian noise of mean
    1/2 and standard deviation 1/4, clipped to [0, 1] (the paper gives neither).
    """
    indices = original.provenance["source_index"]
    if start == "noise":
        shape = original.image_shape
        drawn = [numpy_generator(seed, "start", int(index)).normal(0.5, 0.25, shape) for index in indices]
        return np.clip(np.array(drawn), 0, 1).astype(np.float32), np.full_like(indices, -1)
    count = len(original)
    # One of the count - 1 others: a step of 1 to count - 1 round the circle.
    ahead = [1 + numpy_generator(seed, "start", int(index)).integers(count - 1) for index in indices]
    chosen = (np.arange(count) + np.array(ahead)) % count
    return original.float_images()[chosen], indices[chosen]


def _inverted(
    network: Network, original: ImageDataset, method: Inversion, seed: int, progress: Progress
) -> ImageDataset:
    images = original.float_images()
    begin, start_index = starts(original, method.start, seed)
    device = network.mean.device
    found = np.empty_like(images)
    for batch in _batches(len(images), progress):
        found[batch] = invert(
            network,
            torch.from_numpy(begin[batch]).to(device),
            torch.from_numpy(images[batch]).to(device),
            step_size=method.step_size,
            steps=method.steps,
        ).cpu()
    none = np.full_like(start_index, -1)
    return _derived(original, found, labels=original.labels, target=none, start_index=start_index)


def _batches(count: int, progress: Progress) -> Iterator[slice]:
    for first in range(0, count, BATCH):
        yield slice(first, first + BATCH)
        progress(min(1.0, (first + BATCH) / count))


def _derived(
    original: ImageDataset,
    images: NDArray[np.float32],
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
