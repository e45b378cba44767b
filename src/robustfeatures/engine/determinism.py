"""The settings of torch that decide bits: the same inputs give the same results on one kind of device."""

from __future__ import annotations

import os

import torch


def make_deterministic() -> None:
    """Choose deterministic algorithms in full float32, for the whole process; before the first use of the device."""
    if torch.cuda.is_available():
        # Only where it matters: the call imports torch's compiler, which takes a second.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        # Filling what is written at once anyway only costs time.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # not in its stub
        torch.backends.cudnn.benchmark = False
        # Results are float32 throughout; TF32 has ten bits of mantissa.
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False
