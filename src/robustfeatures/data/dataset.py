"""One split of a data set in memory: images, labels, provenance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch.utils.data import TensorDataset

    from robustfeatures.data.raw import Images

# The size of a block of images as float32.
BLOCK_BYTES = 1 << 25


@dataclass(frozen=True)
class ImageDataset:
    """One split of a data set.

    images: uint8 in 0..255 (original data) or float32 in [0, 1] (derived data), (N, C, H, W): an array, or images
        that are read from disk on access (`open_dataset(..., in_memory=False)`).
    labels: int64 (N,), the labels for training and testing.
    provenance: int64 columns (N,). `source_index` is the image's index in the raw source. Derived sets have three more:
        `source_label`, its class in the raw source; `target`, the class of a targeted attack, else -1; and
        `start_index`, the index in the raw source of the image at which an inversion started, else -1.
    """

    images: Images
    labels: NDArray[np.int64]
    provenance: Mapping[str, NDArray[np.int64]]
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def float_images(self, rows: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """The images of these rows, or all, as float32 in [0, 1], (N, C, H, W)."""
        images = self.images[np.arange(len(self)) if rows is None else rows]
        if images.dtype == np.uint8:
            return images.astype(np.float32) / np.float32(255)
        return images.astype(np.float32, copy=False)

    def blocks(self) -> Iterator[NDArray[np.int64]]:
        """All rows in order, in blocks of at most `BLOCK_BYTES` as float32, but at least one image."""
        size = max(1, BLOCK_BYTES // (int(np.prod(self.image_shape)) * np.dtype(np.float32).itemsize))
        for first in range(0, len(self), size):
            yield np.arange(first, min(first + size, len(self)))

    def channel_statistics(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of each channel over all pixels, (C,), of images in [0, 1]."""
        sums, squares = np.zeros(self.image_shape[0]), np.zeros(self.image_shape[0])
        for rows in self.blocks():
            images = self.float_images(rows).astype(np.float64)
            sums += images.sum(axis=(0, 2, 3))
            squares += (images**2).sum(axis=(0, 2, 3))
        pixels = len(self) * int(np.prod(self.image_shape[1:]))
        mean = sums / pixels
        return mean, np.sqrt(np.maximum(squares / pixels - mean**2, 0))

    def to_torch(self) -> TensorDataset:
        """A torch Dataset of (image float32 in [0, 1], label) pairs."""
        import torch
        from torch.utils.data import TensorDataset

        return TensorDataset(torch.from_numpy(self.float_images()), torch.from_numpy(self.labels))
