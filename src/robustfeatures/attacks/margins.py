"""How sure a network is of a class: the margin, which some attacks lower, and the odds, which PGD changes."""

from __future__ import annotations

import torch
from torch import Tensor


def compute_margins(logits: Tensor, labels: Tensor) -> Tensor:
    """Z_y - max_{i != y} Z_i, (N,), of logits Z (N, K) and classes y (N,)."""
    own, others = _split(logits, labels)
    return own - others.amax(dim=1)


def compute_log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """The logarithm of the odds against the classes y, log((1 - p_y) / p_y), (N,), of logits (N, K) and classes (N,).

    It rises with the cross-entropy, which is log(1 + odds), and its gradient has the same direction. But it has that
    direction in float32 too. The gradient of the cross-entropy with respect to the logit of y is p_y - 1. In float32
    this is 0 where that logit exceeds all others by 17. At about 100 the whole gradient of the cross-entropy is 0.
    """
    own, others = _split(logits, labels)
    return others.logsumexp(dim=1) - own


def _split(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The logits (N,) of the classes, and all logits (N, K) with -inf in place of these."""
    own = labels[:, None]
    return logits.gather(1, own).squeeze(1), logits.scatter(1, own, -torch.inf)
