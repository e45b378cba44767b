"""`gpu_fast_path` of config.yaml: ways to use a GPU that take less time than the plain way.

They are CUDA graphs (`engine/cuda_graphs.py`), and several threads that read into pinned memory (`engine/batches.py`).
They compute the same bits, so no identity depends on them: `tests/gpu/test_fast_path.py` has compared both on an H200.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_on = False


def set_fast_path(on: bool) -> None:
    """Turn the fast path on or off, for the whole process."""
    global _on
    _on = on


def has_fast_path(device: torch.device) -> bool:
    """Whether computations on this device take the fast path; never on a CPU."""
    return _on and device.type == "cuda"
