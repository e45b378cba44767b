"""The settings of torch that decide bits: on one kind of device, the same inputs give the same bits."""

from __future__ import annotations

import os

import torch


def make_deterministic() -> None:
    """Choose deterministic algorithms and full float32 for the whole process; call it before the first use of a GPU."""
    if torch.cuda.is_available():
        # Only with a GPU, because the second call imports torch's compiler, which takes a second.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        # Filling new tensors costs time, and every value is written before it is read.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # not in its stub
        torch.backends.cudnn.benchmark = False
        # Results are float32 throughout; TF32 has ten bits of mantissa.
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False
