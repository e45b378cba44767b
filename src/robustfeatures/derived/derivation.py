"""What a method says of the set that it derives from a split: labels, provenance, and how each image is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset

FLOAT32 = np.dtype(np.float32)
# Called with the steps that a batch has behind it.
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Derivation:
    """A derived set of N images, before they are made.

    labels: int64 (N,), what a model is trained on.
    provenance: int64 columns (N,), as in `ImageDataset`.
    images: rows int64 (n,) of the derived set, and whom to tell of the steps done -> images (n, C, H, W) of `dtype`;
        float32 is in [0, 1].
    steps: how many steps each image takes.
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
    """The provenance of a set with one image for each of the original; -1 where there is no target, or no start."""
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
    """The images `rows` (N,) of the original as they are."""
    return Derivation(
        labels, provenance, images=lambda chosen, told: original.images[rows[chosen]], dtype=original.images.dtype
    )
