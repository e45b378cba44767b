"""The result of a method for one split: labels, provenance, and a function that generates the images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset

FLOAT32 = np.dtype(np.float32)
# Called with the number of finished steps of a batch.
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Derivation:
    """A derived set of N images before they are generated.

    labels: int64 (N,), the labels for training.
    provenance: int64 columns (N,), as in `ImageDataset`.
    images: a function of rows int64 (n,) of the derived set and a progress callback. It returns their images
        (n, C, H, W) of `dtype`; float32 lies in [0, 1].
    steps: the number of steps for each image.
    """

    labels: NDArray[np.int64]
    provenance: Mapping[str, NDArray[np.int64]]
    images: Callable[[NDArray[np.int64], Progress], NDArray[Any]]
    steps: int = 1
    dtype: np.dtype[Any] = FLOAT32

    def __len__(self) -> int:
        return len(self.labels)


def make_provenance(
    original: ImageDataset,
    *,
    target: NDArray[np.int64] | None = None,
    start_index: NDArray[np.int64] | None = None,
) -> dict[str, NDArray[np.int64]]:
    """The provenance of a set with one image per original image; `target` and `start_index` are -1 if not given."""
    none = np.full_like(original.labels, -1)
    return {
        "source_index": original.provenance["source_index"],
        "source_label": original.labels,
        "start_index": none if start_index is None else start_index,
        "target": none if target is None else target,
    }


def select_images(
    original: ImageDataset,
    rows: NDArray[np.int64],
    labels: NDArray[np.int64],
    provenance: Mapping[str, NDArray[np.int64]],
) -> Derivation:
    """A derivation whose images are the unchanged images `rows` (N,) of the original."""
    return Derivation(
        labels, provenance, images=lambda chosen, progress: original.images[rows[chosen]], dtype=original.images.dtype
    )
