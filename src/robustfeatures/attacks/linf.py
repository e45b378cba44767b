"""The ball of the maximum norm: steps along the sign of the gradient."""

from __future__ import annotations

import torch
from torch import Tensor


def step(images: Tensor, gradient: Tensor, step_size: Tensor) -> Tensor:
    """The images (N, C, H, W), each pixel moved by `step_size` along the sign of its gradient."""
    return torch.addcmul(images, gradient.sign(), step_size)


def project(images: Tensor, origin: Tensor, eps: Tensor) -> Tensor:
    """The images (N, C, H, W), each pixel at most `eps` from that of `origin`."""
    return origin + (images - origin).clamp(-eps, eps)


def random_start(images: Tensor, eps: float, generator: torch.Generator | None) -> Tensor:
    """A perturbation (N, C, H, W) drawn uniformly from the ball."""
    return (torch.rand(images.shape, generator=generator).to(images) * 2 - 1) * eps
