"""Images of a split as batches on a device: from its memory if they fit, else read ahead from disk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from robustfeatures.engine.fast_path import has_fast_path

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset

# On a CPU, a split larger than this, as float32, is read from disk batch by batch.
MEMORY_BYTES = 4 << 30
# On a GPU, a split may take this share of the memory that is free.
MEMORY_SHARE = 0.5
# The number of threads that read, and of batches that they read ahead.
READERS, AHEAD = 1, 3
FAST_READERS, FAST_AHEAD = 4, 8
# The values of all images in one batch of an attack: few on a CPU, so that activations fit its caches; many on a GPU,
# so that all its units work.
BATCH_VALUES = {"cpu": 3 << 16, "cuda": 9 << 20}
LARGEST_BATCH = {"cpu": 512, "cuda": 1024}
# A split has at most `MOST_BLOCKS` blocks, each one file. Large images may need more blocks, because a block of float32
# images, of at most `BLOCK_BYTES`, is in memory while it is generated.
MOST_BLOCKS = 30
BLOCK_BYTES = 1 << 30


def choose_batch_size(device: torch.device, image_shape: tuple[int, ...]) -> int:
    """The number of images (C, H, W) in a batch of an attack or evaluation on a device: a power of two."""
    values = BATCH_VALUES.get(device.type, BATCH_VALUES["cuda"]) // math.prod(image_shape)
    fitting = min(max(values, 8), LARGEST_BATCH.get(device.type, LARGEST_BATCH["cuda"]))
    return 1 << (fitting.bit_length() - 1)


def choose_block_rows(count: int, size: int, image_shape: tuple[int, ...], *, fewest: int = 1) -> int:
    """The number of rows in a block, for `count` images (C, H, W) in batches of `size`.

    A block has whole batches, at least `fewest`. Its size depends only on the set and the kind of device. So the result
    has the same bits however many jobs share the blocks, and whichever blocks are computed again.
    """
    batches = math.ceil(count / (size * MOST_BLOCKS))
    fitting = BLOCK_BYTES // (4 * math.prod(image_shape) * size)
    return size * max(fewest, min(batches, fitting))


class Batches(Protocol):
    """Images by rows, as float32 in [0, 1] on a device."""

    def __len__(self) -> int: ...

    @property
    def device(self) -> torch.device:
        """The device of the batches."""
        ...

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        ...

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each `size` rows of `order` (int64 (n,), on the CPU) and their images, both on the device."""
        ...


class InMemory:
    """Batches of images that are all on the device."""

    def __init__(self, images: Tensor) -> None:
        """`images` (N, C, H, W) are float32 in [0, 1], or uint8 in 0..255, which take a quarter of the memory."""
        self.images = images
        self.device = images.device
        self.image_shape = (images.shape[1], images.shape[2], images.shape[3])

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        # One copy for the whole order: a copy per batch would make the host wait for the device each time.
        on_device = order.to(self.device)
        for rows in torch.split(on_device, size):
            yield rows, _as_float(self.images[rows])


class Streamed:
    """Batches of images on disk; threads read them ahead.

    With `gpu_fast_path` several threads read into pinned memory, which is copied while the GPU computes.
    """

    def __init__(self, dataset: ImageDataset, device: torch.device) -> None:
        self.dataset = dataset
        self.device = device
        self.image_shape = dataset.image_shape
        self.pinned = has_fast_path(device)
        self.readers, self.ahead = (FAST_READERS, FAST_AHEAD) if self.pinned else (READERS, AHEAD)

    def __len__(self) -> int:
        return len(self.dataset)

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        order_batches = list(torch.split(order, size))
        with ThreadPoolExecutor(max_workers=self.readers) as reader:
            pending = [reader.submit(self._read, rows) for rows in order_batches[: self.ahead]]
            for number, rows in enumerate(order_batches):
                images = pending.pop(0).result()
                if number + self.ahead < len(order_batches):
                    pending.append(reader.submit(self._read, order_batches[number + self.ahead]))
                yield rows.to(self.device, non_blocking=True), _as_float(images.to(self.device, non_blocking=True))

    def _read(self, rows: Tensor) -> Tensor:
        images = torch.from_numpy(self.dataset.images[rows.numpy()])
        return images.pin_memory() if self.pinned else images


def _as_float(images: Tensor) -> Tensor:
    if images.dtype != torch.uint8:
        return images
    # Divide by a tensor. A GPU replaces division by a number with multiplication by its reciprocal, which differs in
    # the last bit from the quotient on a CPU.
    return images.float().div_(images.new_full((), 255, dtype=torch.float32))


def load_batches(dataset: ImageDataset, device: torch.device, *, memory_bytes: int | None = None) -> Batches:
    """The batches of a split: in the device's memory if they take at most `memory_bytes` of it, else streamed.

    A CPU keeps float32 images, so that each is converted once. A GPU keeps images of uint8 as they are. By default a
    CPU gives 4 GiB, and a GPU half of what is free.
    """
    on_gpu = device.type == "cuda"
    if memory_bytes is None:
        memory_bytes = int(MEMORY_SHARE * torch.cuda.mem_get_info(device)[0]) if on_gpu else MEMORY_BYTES
    value_bytes = dataset.images.dtype.itemsize if on_gpu else 4
    if value_bytes * math.prod(dataset.images.shape) > memory_bytes:
        return Streamed(dataset, device)
    if not on_gpu:
        return InMemory(torch.from_numpy(dataset.float_images()))
    dtype = torch.uint8 if dataset.images.dtype == np.uint8 else torch.float32
    images = torch.empty(dataset.images.shape, dtype=dtype, device=device)
    # In blocks, because the memory of the GPU may be larger than what the job may take of the host's.
    for rows in dataset.blocks():
        images[rows[0] : rows[-1] + 1] = torch.from_numpy(dataset.images[rows])
    return InMemory(images)
