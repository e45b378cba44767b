"""Samples of derived data sets beside their original images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from robustfeatures.experiments.shared.plots.images import ImageRow, image_grid

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset

MAGNIFICATIONS = (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
# The share of changes that the common scale must not clip.
SHOWN_WHOLE = 0.95


def sample_blocks(original: ImageDataset, derived: Mapping[str, ImageDataset], *, images: int) -> Figure:
    """The original images with their classes, and below them the derived images of each set.

    Sets made by an attack show their labels and the magnified change around grey. All of them have the same scale: the
    largest that does not clip 95 % of the change. Inverted sets show their start images, unless they start from noise.
    """
    places = choose_of_each_class(original.labels, images)
    names = original.class_names
    pictures = original.float_images(places)
    at = {int(index): place for place, index in enumerate(original.provenance["source_index"])}
    attacked = {
        name: dataset.float_images(places) - pictures for name, dataset in derived.items() if _is_attacked(dataset)
    }
    factor = choose_magnification(list(attacked.values()))
    blocks = {"D": [ImageRow("original", pictures, [names[label] for label in original.labels[places]])]}
    for name, dataset in derived.items():
        found = dataset.float_images(places)
        if name in attacked:
            rows = [
                ImageRow("derived", found, [names[label] for label in dataset.labels[places]]),
                ImageRow(f"change x {factor:g}", np.clip(0.5 + factor * attacked[name], 0, 1)),
            ]
        else:
            rows = [ImageRow("derived", found)]
            starts = dataset.provenance["start_index"][places]
            if (starts >= 0).all():
                begun = original.float_images(np.array([at[int(start)] for start in starts]))
                rows = [ImageRow("started from", begun), *rows]
        blocks[name] = rows
    return image_grid(blocks)


def _is_attacked(dataset: ImageDataset) -> bool:
    return bool((dataset.provenance["target"] >= 0).all())


def choose_magnification(changes: list[NDArray[np.float32]]) -> float:
    """The largest round factor at which 95 % of all changes stay between black and white."""
    if not changes:
        return 1.0
    largest = float(np.quantile(np.abs(np.concatenate([change.ravel() for change in changes])), SHOWN_WHOLE))
    fitting = [factor for factor in MAGNIFICATIONS if factor * largest <= 0.5]
    return max(fitting) if fitting and largest > 0 else 1.0


def choose_of_each_class(labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The first image of each class, then the second of each, up to `count`; each round is sorted by class."""
    rank = np.zeros(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        chosen = labels == label
        rank[chosen] = np.arange(chosen.sum())
    return np.lexsort((labels, rank))[:count]
