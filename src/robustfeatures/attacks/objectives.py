"""The objectives that attacks maximise: functions of images (N, C, H, W) that return a sum over the images, ().

You can write your own objective as such a function:

    def confidence(images: Tensor) -> Tensor:
        return network(images).softmax(dim=1).amax(dim=1).sum()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from robustfeatures.attacks.gradient_ascent import Objective
    from robustfeatures.engine.frozen_network import FrozenNetwork
    from robustfeatures.models.network import Network


def untargeted_cross_entropy(model: nn.Module, labels: Tensor) -> Objective:
    """The cross-entropy of the true `labels` (N,)."""
    return lambda images: functional.cross_entropy(model(images), labels, reduction="sum")


def targeted_cross_entropy(model: nn.Module, targets: Tensor) -> Objective:
    """Minus the cross-entropy of the `targets` (N,): not-bugs-2019, equation 7."""
    return lambda images: -functional.cross_entropy(model(images), targets, reduction="sum")


def minus_representation_distance(model: Network | FrozenNetwork, targets: Tensor) -> Objective:
    """Minus the L2 distance of g(x) to `targets` (N, D): not-bugs-2019, equation 6."""
    return lambda images: -torch.linalg.vector_norm(model.representation(images) - targets, dim=1).sum()
