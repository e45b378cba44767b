"""One split of a data set in memory: images, labels, provenance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from robustfeatures.data.pixels import Statistics, as_float, channel_statistics, split_rows

if TYPE_CHECKING:
    from torch.utils.data import TensorDataset

    from robustfeatures.data.raw import Images


@dataclass(frozen=True)
class ImageDataset:
    """One split of a data set.

    images: uint8 in 0..255 (original data) or float32 in [0, 1] (derived data), (N, C, H, W): an array, or images
        that are read from disk on access (`open_dataset(..., in_memory=False)`).
    labels: int64 (N,), the labels for training and testing.
    provenance: int64 columns (N,). `source_index` is the image's index in the raw source. Derived sets have three more:
        `source_label`, its class in the raw source; `target`, the class of a targeted attack, else -1; and
        `start_index`, the index in the raw source of the image at which an inversion started, else -1.
    statistics: what `channel_statistics` returns, if it is known; the data stage writes it once for all trainings.
    """

    images: Images
    labels: NDArray[np.int64]
    provenance: Mapping[str, NDArray[np.int64]]
    class_names: tuple[str, ...]
    statistics: Statistics | None = None

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
        return as_float(self.images[np.arange(len(self)) if rows is None else rows])

    def blocks(self) -> Iterator[NDArray[np.int64]]:
        """All rows in order, in blocks of at most 32 MiB as float32, but at least one image."""
        return split_rows(self.images.shape)

    def channel_statistics(self) -> Statistics:
        """Mean and standard deviation of each channel over all pixels, (C,), of images in [0, 1]."""
        return channel_statistics(self.images) if self.statistics is None else self.statistics

    def to_torch(self) -> TensorDataset:
        """A torch Dataset of (image float32 in [0, 1], label) pairs."""
        import torch
        from torch.utils.data import TensorDataset

        return TensorDataset(torch.from_numpy(self.float_images()), torch.from_numpy(self.labels))
