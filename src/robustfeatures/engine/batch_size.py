"""The number of images in a batch of an attack or evaluation, by the memory that the network needs for each image."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from robustfeatures.engine.batches import choose_batch_size
from robustfeatures.engine.eval_mode import freeze

log = logging.getLogger(__name__)

T = TypeVar("T")

# What the network keeps for the backward pass of one batch on a GPU: enough images for all its units, and few enough
# for a card of 8 GB. Assumed: an attack on ResNet-18 took 5.3 GB in float32 on an H200 (`docs/benchmarks/gpu-cuda.md`).
KEPT_BYTES = 3 << 30
LARGEST_BATCH = 1024


class BatchSize:
    """The number of images in a batch; it is halved when they do not fit in the memory of the device.

    planned: the number at first, which depends on the network, the size of its images and the kind of device alone.
    """

    def __init__(self, planned: int) -> None:
        self.planned = planned
        self.images = planned

    def fit(self, compute: Callable[[int], T]) -> T:
        """Return `compute(images)`; if the memory does not suffice, again with half as many images, and so on.

        Later calls begin with the number that fitted. `compute` must give the same result when it begins anew.

        Raises:
            torch.OutOfMemoryError: one image does not fit.
        """
        while True:
            try:
                return compute(self.images)
            except torch.OutOfMemoryError:
                if self.images == 1:
                    raise
            # After the handler, because the error keeps the tensors of the call alive.
            torch.cuda.empty_cache()
            self.images //= 2
            log.warning("the device has too little memory for %d images at once; now %d", 2 * self.images, self.images)


def fit_batch_size(network: nn.Module, device: torch.device, image_shape: tuple[int, ...]) -> BatchSize:
    """Choose the number of images (C, H, W) in a batch for a network in eval mode.

    On a processor it follows from the images alone. On a GPU it is the largest power of two, up to `LARGEST_BATCH`, for
    which the network keeps at most `KEPT_BYTES`.
    """
    if device.type == "cpu":
        return BatchSize(choose_batch_size(device, image_shape))
    fitting = min(int(KEPT_BYTES // max(1, measure_kept_bytes(network, image_shape))), LARGEST_BATCH)
    return BatchSize(1 << (max(1, fitting).bit_length() - 1))


def measure_kept_bytes(network: nn.Module, image_shape: tuple[int, ...]) -> int:
    """Measure the bytes that the network keeps for each image until its backward pass, without its weights."""
    weights = [*network.parameters(), *network.buffers()]
    own = {weight.untyped_storage().data_ptr() for weight in weights}
    kept: dict[int, int] = {}

    def keep(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in own:
            # Several operations may keep the same memory.
            kept[storage.data_ptr()] = storage.nbytes()
        return saved

    # Torch's compiler makes other kernels for one image than for several.
    count = 2
    like = next((weight for weight in weights if weight.dtype in (torch.float32, torch.float64)), torch.empty(0))
    images = torch.zeros((count, *image_shape), dtype=like.dtype, device=like.device, requires_grad=True)
    with freeze(network), torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        # The result keeps the tensors alive, so that no two of them have the same address.
        logits = network(images)
    del logits
    return sum(kept.values()) // count
