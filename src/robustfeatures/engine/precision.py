"""The layout and the precision of convolutions."""

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

# Channels in a block of oneDNN: 16 with AVX-512, 8 before.
ONEDNN_BLOCK = 16
# What a processor must have, on x86 or on Arm, to multiply bfloat16 faster than float32.
BFLOAT16_UNITS = ("avx512_bf16", "amx_bf16", "bf16")


def choose_layout(network: nn.Module, device: torch.device) -> torch.memory_format:
    """The layout to train a network in.

    On a processor, oneDNN 3.12's gradient of a strided 1x1 convolution by its weights writes out of bounds in the
    channels-last layout where there are fewer input channels than fill a block (uxlfoundation/oneDNN, issue 6035).
    """
    narrow = any(
        isinstance(module, nn.Conv2d) and module.stride != (1, 1) and module.in_channels < ONEDNN_BLOCK
        for module in network.modules()
    )
    return torch.contiguous_format if device.type == "cpu" and narrow else torch.channels_last


def convert_layout(images: Tensor, layout: torch.memory_format) -> Tensor:
    """The images (N, C, H, W) in that layout."""
    images = images.contiguous(memory_format=layout)
    if images.shape[1] == 1 and layout == torch.contiguous_format:
        # With one channel both layouts are the same bytes, so the line above did nothing; but convolutions go by the
        # strides, and would take those of the other.
        images = images.squeeze(1).unsqueeze(1)
    return images


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Convolutions and matrix products in the given precision; what needs float32 keeps it."""
    half = precision == "bfloat16"
    if not half and not torch.is_autocast_enabled(device.type):
        # To enter torch.autocast takes time, even if it is to do nothing.
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=half)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 itself; where it is emulated it takes longer than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    found = torch.cpu.get_capabilities()
    return any(found.get(unit, False) for unit in BFLOAT16_UNITS)


def warn_if_emulated(device: torch.device, precision: Precision) -> None:
    """Say in the log, once in a process, that the precision will cost time."""
    if precision == "bfloat16" and not has_bfloat16(device):
        _say_emulated(device.type)


@cache
def _say_emulated(kind: str) -> None:
    log.warning("precision: bfloat16 is emulated on this %s, which takes several times as long as float32", kind)
