"""The gradient of the loss with respect to the input, and its rendering as an image (at-odds-2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robustfeatures.attacks.gradient_ascent import gradient
from robustfeatures.attacks.objectives import log_odds_against
from robustfeatures.engine.eval_mode import freeze


def loss_gradients(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return the gradient of each image's loss with respect to its pixels, (N, C, H, W), up to a positive factor.

    The loss is the log odds against the class. Their gradient has the direction of the cross-entropy's, which float32
    loses where the network is sure (`compute_log_odds`). `images` (N, C, H, W) are in [0, 1], and `labels` (N,) are
    their classes. The model runs in eval mode; afterwards its mode is restored.
    """
    with freeze(model):
        return gradient(log_odds_against(model, labels), images)


def render_gradients(gradients: Tensor, deviations: float) -> Tensor:
    """Turn gradients (N, C, H, W) into images in [0, 1]: clipped at +-`deviations` standard deviations, 0 becomes 1/2.

    Each image has its own standard deviation, over channels and pixels (at-odds-2019, Figure 2: "we clip gradients to
    within +-3 sigma and rescale them to lie in the [0, 1] range"). A gradient of zeros becomes 1/2 everywhere.
    """
    spread = gradients.std(dim=(1, 2, 3), keepdim=True, correction=0)
    scaled = gradients / (deviations * spread).clamp_min(torch.finfo(gradients.dtype).tiny)
    return 0.5 + 0.5 * scaled.clamp(-1.0, 1.0)
