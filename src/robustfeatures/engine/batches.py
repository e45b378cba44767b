"""Images of a split as batches on a device: from its memory if they fit, else read ahead from disk."""

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
# The number of batches that are read ahead.
AHEAD = 3
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
        """`images` are float32 (N, C, H, W) in [0, 1]."""
        self.images = images
        self.device = images.device
        self.image_shape = (images.shape[1], images.shape[2], images.shape[3])

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        # One copy for the whole order: a copy per batch would make the host wait for the device each time.
        on_device = order.to(self.device)
        for rows in torch.split(on_device, size):
            yield rows, self.images[rows]


class Streamed:
    """Batches of images on disk; a thread reads them ahead."""

    def __init__(self, dataset: ImageDataset, device: torch.device) -> None:
        self.dataset = dataset
        self.device = device
        self.image_shape = dataset.image_shape

    def __len__(self) -> int:
        return len(self.dataset)

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        order_batches = list(torch.split(order, size))
        with ThreadPoolExecutor(max_workers=1) as reader:
            pending = [reader.submit(self._read, rows) for rows in order_batches[:AHEAD]]
            for number, rows in enumerate(order_batches):
                images = pending.pop(0).result()
                if number + AHEAD < len(order_batches):
                    pending.append(reader.submit(self._read, order_batches[number + AHEAD]))
                yield rows.to(self.device, non_blocking=True), _as_float(images.to(self.device, non_blocking=True))

    def _read(self, rows: Tensor) -> Tensor:
        images = torch.from_numpy(self.dataset.images[rows.numpy()])
        return images.pin_memory() if self.device.type == "cuda" else images


def _as_float(images: Tensor) -> Tensor:
    if images.dtype != torch.uint8:
        return images
    # Divide by a tensor. A GPU replaces division by a number with multiplication by its reciprocal, which differs in
    # the last bit from the quotient on a CPU.
    return images.float().div_(images.new_full((), 255, dtype=torch.float32))


def load_batches(dataset: ImageDataset, device: torch.device, *, memory_bytes: int = MEMORY_BYTES) -> Batches:
    """The batches of a split: in the device's memory if they take at most `memory_bytes` as float32, else streamed."""
    if 4 * math.prod(dataset.images.shape) > memory_bytes:
        return Streamed(dataset, device)
    return InMemory(torch.from_numpy(dataset.float_images()).to(device))
