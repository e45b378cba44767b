"""Pixels as numbers in [0, 1], and their statistics. Without torch, because the data stage uses this module too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from robustfeatures.data.raw import Images

# Mean and standard deviation of each channel, (C,).
Statistics = tuple[NDArray[np.float64], NDArray[np.float64]]

# A channel with a smaller standard deviation is constant, but for rounding.
CONSTANT = 1e-6
# The size of a block of images as float32.
BLOCK_BYTES = 1 << 25


def as_float(images: NDArray[Any]) -> NDArray[np.float32]:
    """Images (N, C, H, W), uint8 in 0..255 or float32 in [0, 1], as float32 in [0, 1]."""
    if images.dtype == np.uint8:
        return images.astype(np.float32) / np.float32(255)
    return images.astype(np.float32, copy=False)


def split_rows(shape: tuple[int, ...]) -> Iterator[NDArray[np.int64]]:
    """All rows of images (N, C, H, W) in order, in blocks of at most `BLOCK_BYTES` as float32, but at least one."""
    size = max(1, BLOCK_BYTES // (int(np.prod(shape[1:])) * np.dtype(np.float32).itemsize))
    for first in range(0, shape[0], size):
        yield np.arange(first, min(first + size, shape[0]))


def channel_statistics(images: Images) -> Statistics:
    """Mean and standard deviation of each channel over all pixels, (C,), of images (N, C, H, W) in [0, 1].

    The deviation of a constant channel is given as 1, as by scikit-learn's StandardScaler. Normalised by its own, the
    smallest change of such a channel would be huge to a network.
    """
    sums, squares = np.zeros(images.shape[1]), np.zeros(images.shape[1])
    for rows in split_rows(images.shape):
        block = as_float(images[rows]).astype(np.float64)
        sums += block.sum(axis=(0, 2, 3))
        squares += (block**2).sum(axis=(0, 2, 3))
    pixels = images.shape[0] * int(np.prod(images.shape[2:]))
    mean = sums / pixels
    std = np.sqrt(np.maximum(squares / pixels - mean**2, 0))
    return mean, np.where(std < CONSTANT, 1.0, std)
