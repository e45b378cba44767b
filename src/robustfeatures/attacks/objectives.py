"""What an attack maximises. Targeted or untargeted is the choice of the object, so the sign lives here alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from robustfeatures.attacks.norms import TINY
from robustfeatures.engine.prepared import Prepared

if TYPE_CHECKING:
    from robustfeatures.models.network import Network


@dataclass(frozen=True)
class Objective:
    """A sum over images of a function of what a network makes of each, known by its slope.

    `slope` gives the gradient of that function by the network's logits, or by its representation, (N, D), from these.
    """

    model: nn.Module
    slope: Callable[[Tensor], Tensor]
    of: Literal["logits", "representation"] = "logits"

    def gradient(self, images: Tensor) -> Tensor:
        """The gradient by each pixel of images (N, C, H, W) in [0, 1]; the model is frozen and in eval mode."""
        if isinstance(self.model, Prepared) and self.model.chain is not None:
            return self.model.gradient_by_hand(self.model.chain, images, self.slope, self.of)
        leaf = images.detach().requires_grad_(True)
        outputs = self.model(leaf) if self.of == "logits" else self.model.representation(leaf)  # type: ignore[operator]
        (gradient,) = torch.autograd.grad(outputs, leaf, self.slope(outputs.detach()))
        return gradient


def leave_class(model: nn.Module, labels: Tensor) -> Objective:
    """The summed cross-entropy of the true `labels` (N,): untargeted attacks raise it."""

    @cache
    def onehot(classes: int, dtype: torch.dtype) -> Tensor:
        return (labels[:, None] == torch.arange(classes, device=labels.device)).to(dtype)

    def slope(logits: Tensor) -> Tensor:
        """softmax(z) - onehot(y)."""
        return logits.softmax(1) - onehot(logits.shape[1], logits.dtype)

    return Objective(model, slope)


def reach_class(model: nn.Module, targets: Tensor) -> Objective:
    """Minus the summed cross-entropy of the `targets` (N,): not-bugs-2019, equation 7."""
    leave = leave_class(model, targets)
    return Objective(model, lambda logits: -leave.slope(logits))


def reach_representation(model: Network | Prepared, targets: Tensor) -> Objective:
    """Minus the summed distance of g(x) to `targets` (N, D): not-bugs-2019, equation 6."""

    def slope(representation: Tensor) -> Tensor:
        ahead = targets - representation
        length: Tensor = torch.linalg.vector_norm(ahead, dim=1, keepdim=True)
        return ahead / length.clamp_min(TINY)

    return Objective(model, slope, "representation")
