"""The precision of convolutions and matrix products."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from robustfeatures.engine.settings import Precision

log = logging.getLogger(__name__)

# The processor features, on x86 or Arm, that make bfloat16 products faster than float32.
BFLOAT16_UNITS = ("avx512_bf16", "amx_bf16", "bf16")


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
