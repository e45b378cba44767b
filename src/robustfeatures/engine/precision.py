"""The layout and the precision of convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from robustfeatures.recipes.parameters import Precision

# Below this width the kernels for channels-last tensors lose to the plain ones (tests/benchmarks).
CHANNELS_LAST_FROM = 16


def memory_format(width: int) -> torch.memory_format:
    """The layout in which convolutions of images `width` pixels wide run fastest."""
    return torch.channels_last if width >= CHANNELS_LAST_FROM else torch.contiguous_format


def laid_out(images: Tensor) -> Tensor:
    """The images (N, C, H, W) in that layout."""
    return images.contiguous(memory_format=memory_format(images.shape[-1]))


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Convolutions and matrix products in the given precision; what needs float32 keeps it."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")
