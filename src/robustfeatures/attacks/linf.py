"""The Linf norm: steps along the sign of the gradient."""

from __future__ import annotations

import torch
from torch import Tensor


def step(images: Tensor, gradient: Tensor, step_size: Tensor) -> Tensor:
    """Move each pixel of the images (N, C, H, W) by `step_size` along the sign of its gradient."""
    return torch.addcmul(images, gradient.sign(), step_size)


def project(images: Tensor, origin: Tensor, eps: Tensor) -> Tensor:
    """Project the images (N, C, H, W) on the ball: each pixel differs from `origin` by at most `eps`."""
    return origin + (images - origin).clamp(-eps, eps)


def random_start(images: Tensor, eps: float, generator: torch.Generator | None) -> Tensor:
    """Draw a perturbation (N, C, H, W) uniformly from the ball."""
    device = images.device if generator is None else generator.device
    return (torch.rand(images.shape, generator=generator, device=device).to(images) * 2 - 1) * eps
