"""Images of a split as batches on a device: from its memory where they fit, else read ahead from disk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset

# A split larger than this, as float32, is read from disk batch by batch.
MEMORY_BYTES = 4 << 30
# Batches that are read while one is computed on.
AHEAD = 3
# Values of all images in one batch of an attack: few on a processor, so that activations stay near its caches; a GPU
# wants to be filled.
BATCH_VALUES = {"cpu": 3 << 16, "cuda": 9 << 20}
LARGEST_BATCH = {"cpu": 512, "cuda": 1024}


# At most so many blocks make up a split, each a file of its own; of large images more, since a block of float32 images
# is held in memory while it is made.
MOST_BLOCKS = 30
BLOCK_BYTES = 1 << 30


def choose_batch_size(device: torch.device, image_shape: tuple[int, ...]) -> int:
    """How many images (C, H, W) an attack or evaluation takes at once on a device: a power of two."""
    values = BATCH_VALUES.get(device.type, BATCH_VALUES["cuda"]) // math.prod(image_shape)
    fitting = min(max(values, 8), LARGEST_BATCH.get(device.type, LARGEST_BATCH["cuda"]))
    return 1 << (fitting.bit_length() - 1)


def choose_block_rows(count: int, size: int, image_shape: tuple[int, ...], *, fewest: int = 1) -> int:
    """The rows of each block in which `count` images (C, H, W) are worked through in batches of `size`.

    Blocks hold whole batches, `fewest` or more, and depend on nothing but the set and the kind of device: so it makes
    no difference to a single bit of the result how many jobs share them, or which of them are made anew.
    """
    batches = math.ceil(count / (size * MOST_BLOCKS))
    fitting = BLOCK_BYTES // (4 * math.prod(image_shape) * size)
    return size * max(fewest, min(batches, fitting))


class Batches(Protocol):
    """Images by rows, as float32 in [0, 1] on a device."""

    def __len__(self) -> int: ...

    @property
    def device(self) -> torch.device:
        """Where the batches are."""
        ...

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        ...

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """For each `size` rows of `order` (int64 (n,), on the CPU): the rows and their images, on the device."""
        ...


class InMemory:
    """All images on their device."""

    def __init__(self, images: Tensor) -> None:
        """`images` are float32 (N, C, H, W) in [0, 1]."""
        self.images = images
        self.device = images.device
        self.image_shape = (images.shape[1], images.shape[2], images.shape[3])

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        # One copy for the whole order: a copy per batch would make the host wait for the device each time.
        there = order.to(self.device)
        for rows in torch.split(there, size):
            yield rows, self.images[rows]


class Streamed:
    """Images on disk, read and moved to the device by a thread of their own ahead of their use."""

    def __init__(self, dataset: ImageDataset, device: torch.device) -> None:
        self.dataset = dataset
        self.device = device
        self.image_shape = dataset.image_shape

    def __len__(self) -> int:
        return len(self.dataset)

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        waiting = list(torch.split(order, size))
        with ThreadPoolExecutor(max_workers=1) as reader:
            coming = [reader.submit(self._read, rows) for rows in waiting[:AHEAD]]
            for number, rows in enumerate(waiting):
                images = coming.pop(0).result()
                if number + AHEAD < len(waiting):
                    coming.append(reader.submit(self._read, waiting[number + AHEAD]))
                yield rows.to(self.device, non_blocking=True), _as_float(images.to(self.device, non_blocking=True))

    def _read(self, rows: Tensor) -> Tensor:
        images = torch.from_numpy(self.dataset.images[rows.numpy()])
        return images.pin_memory() if self.device.type == "cuda" else images


def _as_float(images: Tensor) -> Tensor:
    if images.dtype != torch.uint8:
        return images
    # By a tensor: a GPU multiplies by the reciprocal of a number, which is not the processor's quotient to the bit.
    return images.float().div_(images.new_full((), 255, dtype=torch.float32))


def load_batches(dataset: ImageDataset, device: torch.device, *, memory_bytes: int = MEMORY_BYTES) -> Batches:
    """A split on a device: in memory where it takes at most `memory_bytes` as float32, else streamed."""
    if 4 * math.prod(dataset.images.shape) > memory_bytes:
        return Streamed(dataset, device)
    return InMemory(torch.from_numpy(dataset.float_images()).to(device))
