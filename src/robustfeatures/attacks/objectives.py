"""The objectives that attacks maximise: functions of images (N, C, H, W) that return a sum over the images, ().

You can write your own objective as such a function:

    def confidence(images: Tensor) -> Tensor:
        return network(images).softmax(dim=1).amax(dim=1).sum()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from robustfeatures.attacks.gradient_ascent import NetworkObjective, Objective

if TYPE_CHECKING:
    from robustfeatures.engine.frozen_network import FrozenNetwork
    from robustfeatures.models.network import Network


def untargeted_cross_entropy(model: nn.Module, labels: Tensor) -> Objective:
    """The cross-entropy of the true `labels` (N,)."""
    return NetworkObjective(_cross_entropy, model, labels)


def targeted_cross_entropy(model: nn.Module, targets: Tensor) -> Objective:
    """Minus the cross-entropy of the `targets` (N,): not-bugs-2019, equation 7."""
    return NetworkObjective(_minus_cross_entropy, model, targets)


def minus_representation_distance(model: Network | FrozenNetwork, targets: Tensor) -> Objective:
    """Minus the L2 distance of g(x) to `targets` (N, D): not-bugs-2019, equation 6."""
    return NetworkObjective(_minus_distance, model, targets)


def _cross_entropy(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(model(images), labels, reduction="sum")


def _minus_cross_entropy(model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    return -_cross_entropy(model, images, targets)


def _minus_distance(model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    representation = cast("Network | FrozenNetwork", model).representation(images)
    distances: Tensor = torch.linalg.vector_norm(representation - targets, dim=1)
    return -distances.sum()
