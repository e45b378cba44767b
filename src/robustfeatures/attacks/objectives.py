"""What an attack maximises. Targeted or untargeted is the choice of the object, so the sign lives here alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from robustfeatures.engine.prepared import Prepared
    from robustfeatures.models.network import Network


Objective = Callable[[Tensor], Tensor]


def leave_class(model: nn.Module, labels: Tensor) -> Objective:
    """The summed cross-entropy of the true `labels` (N,): untargeted attacks raise it."""
    return lambda images: functional.cross_entropy(model(images), labels, reduction="sum")


def reach_class(model: nn.Module, targets: Tensor) -> Objective:
    """Minus the summed cross-entropy of the `targets` (N,): not-bugs-2019, equation 7."""
    return lambda images: -functional.cross_entropy(model(images), targets, reduction="sum")


def reach_representation(model: Network | Prepared, targets: Tensor) -> Objective:
    """Minus the summed distance of g(x) to `targets` (N, D): not-bugs-2019, equation 6."""
    return lambda images: -(model.representation(images) - targets).norm(dim=1).sum()
