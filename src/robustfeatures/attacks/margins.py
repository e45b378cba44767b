"""The margin of a prediction, which some attacks lower."""

from __future__ import annotations

import torch
from torch import Tensor


def compute_margins(logits: Tensor, labels: Tensor) -> Tensor:
    """Z_y - max_{i != y} Z_i, (N,), of logits Z (N, K) and classes y (N,)."""
    own = labels[:, None]
    return logits.gather(1, own).squeeze(1) - logits.scatter(1, own, -torch.inf).amax(dim=1)
