"""Samples of derived data sets beside the images they were made from."""

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
# The share of changes that the common scale must show whole.
SHOWN_WHOLE = 0.95


def sample_blocks(original: ImageDataset, derived: Mapping[str, ImageDataset], *, images: int) -> Figure:
    """The original images with their classes, and per derived set the same ones as they became.

    Attacked sets show their labels and, magnified and round grey, the change, on one scale for all of them: the largest
    that leaves 95 % of it whole. Inverted sets show what they started from, unless that was noise, which is not kept.
    """
    places = one_of_each_class(original.labels, images)
    names = original.class_names
    pictures = original.float_images(places)
    at = {int(index): place for place, index in enumerate(original.provenance["source_index"])}
    attacked = {
        name: dataset.float_images(places) - pictures for name, dataset in derived.items() if _is_attacked(dataset)
    }
    factor = magnification(list(attacked.values()))
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


def magnification(changes: list[NDArray[np.float32]]) -> float:
    """The largest round factor that leaves 95 % of all these changes between black and white."""
    if not changes:
        return 1.0
    largest = float(np.quantile(np.abs(np.concatenate([change.ravel() for change in changes])), SHOWN_WHOLE))
    fitting = [factor for factor in MAGNIFICATIONS if factor * largest <= 0.5]
    return max(fitting) if fitting and largest > 0 else 1.0


def one_of_each_class(labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The first image of each class, then the second of each, until there are `count`; sorted by class."""
    rank = np.zeros(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        chosen = labels == label
        rank[chosen] = np.arange(chosen.sum())
    return np.lexsort((labels, rank))[:count]
