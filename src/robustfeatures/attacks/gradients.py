"""The gradient of the loss with respect to the input, and how at-odds-2019 shows it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robustfeatures.attacks.gradient_ascent import gradient
from robustfeatures.attacks.objectives import untargeted_cross_entropy
from robustfeatures.engine.eval_mode import freeze


def loss_gradients(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The gradient of each image's cross-entropy with respect to its pixels, (N, C, H, W).

    `images` (N, C, H, W) in [0, 1], `labels` (N,). The model is run in eval mode and left as it was.
    """
    with freeze(model):
        return gradient(untargeted_cross_entropy(model, labels), images)


def pictured(gradients: Tensor, deviations: float) -> Tensor:
    """Gradients (N, C, H, W) as images in [0, 1]: clipped at +-`deviations` standard deviations, zero at 1/2.

    The standard deviation is each image's own, over channels and pixels (at-odds-2019, Figure 2: "we clip gradients to
    within +-3 sigma and rescale them to lie in the [0, 1] range"). A gradient that is zero throughout is all 1/2.
    """
    spread = gradients.std(dim=(1, 2, 3), keepdim=True, correction=0)
    scaled = gradients / (deviations * spread).clamp_min(torch.finfo(gradients.dtype).tiny)
    return 0.5 + 0.5 * scaled.clamp(-1.0, 1.0)
