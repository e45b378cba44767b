"""The memory layout and the precision of convolutions."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from robustfeatures.engine.settings import Precision

log = logging.getLogger(__name__)

# Channels in a block of oneDNN: 16 with AVX-512, 8 on older processors.
ONEDNN_BLOCK = 16
# The processor features, on x86 or Arm, that make bfloat16 products faster than float32.
BFLOAT16_UNITS = ("avx512_bf16", "amx_bf16", "bf16")


def choose_layout(network: nn.Module, device: torch.device) -> torch.memory_format:
    """The memory layout for training a network.

    oneDNN 3.12 on a CPU has a bug in the channels-last layout: the weight gradient of a strided 1x1 convolution writes
    out of bounds if there are fewer input channels than a block has (uxlfoundation/oneDNN, issue 6035).
    """
    narrow = any(
        isinstance(module, nn.Conv2d) and module.stride != (1, 1) and module.in_channels < ONEDNN_BLOCK
        for module in network.modules()
    )
    return torch.contiguous_format if device.type == "cpu" and narrow else torch.channels_last


def convert_layout(images: Tensor, layout: torch.memory_format) -> Tensor:
    """The images (N, C, H, W) in this memory layout."""
    images = images.contiguous(memory_format=layout)
    if images.shape[1] == 1 and layout == torch.contiguous_format:
        # With one channel both layouts have the same bytes, so the line above changes nothing. But convolutions go by
        # the strides, and these may still be those of the other layout.
        images = images.squeeze(1).unsqueeze(1)
    return images


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """A context for convolutions and matrix products in this precision; other operations stay in float32."""
    half = precision == "bfloat16"
    if not half and not torch.is_autocast_enabled(device.type):
        # Entering torch.autocast takes time even if it is disabled.
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=half)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device has units for bfloat16. Emulated bfloat16 is slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    features = torch.cpu.get_capabilities()
    return any(features.get(unit, False) for unit in BFLOAT16_UNITS)


def emulates(device: torch.device, precision: Precision) -> bool:
    """Whether the device has no units for this precision."""
    return precision == "bfloat16" and not has_bfloat16(device)


def warn_if_emulated(device: torch.device, precision: Precision) -> None:
    """Warn in the log, once per process, if the device emulates this precision."""
    if emulates(device, precision):
        _warn_emulated(device.type)


@cache
def _warn_emulated(kind: str) -> None:
    log.warning("precision: bfloat16 is emulated on this %s, which may take twenty times as long as float32", kind)
