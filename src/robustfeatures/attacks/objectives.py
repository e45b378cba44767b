"""The objectives that attacks maximise: functions of images (N, C, H, W) that return a sum over the images, ().

You can write your own objective as such a function:

    def confidence(images: Tensor) -> Tensor:
        return network(images).softmax(dim=1).amax(dim=1).sum()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from robustfeatures.attacks.gradient_ascent import NetworkObjective, Objective
from robustfeatures.attacks.margins import compute_log_odds

if TYPE_CHECKING:
    from robustfeatures.engine.frozen_network import FrozenNetwork
    from robustfeatures.models.network import Network


def log_odds_against(model: nn.Module, labels: Tensor) -> Objective:
    """The log odds against the classes `labels` (N,), which rise with their cross-entropy (`compute_log_odds`)."""
    return NetworkObjective(_log_odds_against, model, labels)


def log_odds_of(model: nn.Module, targets: Tensor) -> Objective:
    """The log odds of the `targets` (N,), which rise as their cross-entropy falls: not-bugs-2019, equation 7."""
    return NetworkObjective(_log_odds_of, model, targets)


def minus_representation_distance(model: Network | FrozenNetwork, targets: Tensor) -> Objective:
    """Minus the L2 distance of g(x) to `targets` (N, D): not-bugs-2019, equation 6."""
    return NetworkObjective(_minus_distance, model, targets)


def _log_odds_against(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return compute_log_odds(model(images), labels).sum()


def _log_odds_of(model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    return -_log_odds_against(model, images, targets)


def _minus_distance(model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    representation = cast("Network | FrozenNetwork", model).representation(images)
    distances: Tensor = torch.linalg.vector_norm(representation - targets, dim=1)
    return -distances.sum()
