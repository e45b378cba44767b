"""Projected gradient descent (Madry et al., 2018) in an L2 or Linf ball."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from robustfeatures.attacks.gradient_ascent import gradient_ascent
from robustfeatures.attacks.norms import load_norm
from robustfeatures.attacks.objectives import log_odds_against, log_odds_of
from robustfeatures.engine.eval_mode import freeze


def pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    norm: str,
    eps: float,
    step_size: float,
    steps: int,
    targeted: bool = False,
    random_start: bool = False,
    generator: torch.Generator | None = None,
    progress: Callable[[int], None] = lambda steps: None,
) -> Tensor:
    """Return adversarial examples of `images` (N, C, H, W) in [0, 1], inside the `norm` ball of radius `eps`.

    An untargeted attack raises the log odds against the true classes `labels` (N,). A `targeted` attack raises the log
    odds of the target classes `labels`. Their gradients have the directions of the cross-entropy's
    (`compute_log_odds`). Each step moves by `step_size` along the normalised gradient ("l2") or its sign ("linf"), then
    projects on the ball, then clips to [0, 1]. The function returns the last iterate. `generator` draws the random
    start on its own device. The model runs in eval mode; afterwards its mode is restored. After each step, `progress`
    receives the number of steps done.

    Raises:
        ValueError: the norm is unknown, or `eps`, `step_size` or `steps` is negative.
    """
    ball = load_norm(norm)
    objective = (log_odds_of if targeted else log_odds_against)(model, labels)
    start = images
    if random_start:
        start = (images + ball.random_start(images, eps, generator)).clamp(0.0, 1.0)
    with freeze(model):
        return gradient_ascent(
            objective,
            start,
            norm=ball,
            step_size=step_size,
            steps=steps,
            origin=images,
            eps=eps,
            progress=progress,
        )
