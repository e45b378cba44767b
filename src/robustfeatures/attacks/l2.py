"""The L2 norm: steps along the normalised gradient, as in Madry et al. (2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from robustfeatures.attacks.norms import TINY


def step(images: Tensor, gradient: Tensor, step_size: Tensor) -> Tensor:
    """Move the images (N, C, H, W) by `step_size` along the normalised gradient."""
    return torch.addcmul(images, gradient, step_size / _l2_lengths(gradient))


def project(images: Tensor, origin: Tensor, eps: Tensor) -> Tensor:
    """Project the images (N, C, H, W) on the ball: their L2 distance to `origin` is at most `eps`."""
    change = images - origin
    return torch.addcmul(origin, change, (eps / _l2_lengths(change)).clamp_max_(1.0))


def random_start(images: Tensor, eps: float, generator: torch.Generator | None) -> Tensor:
    """Draw a perturbation (N, C, H, W) uniformly from the ball."""
    device = images.device if generator is None else generator.device
    direction = torch.randn(images.shape, generator=generator, device=device).to(images)
    # A uniform point of a d-ball has a radius distributed as U^(1/d).
    radius = torch.rand((len(images), 1, 1, 1), generator=generator, device=device).to(images)
    return direction / _l2_lengths(direction) * eps * radius ** (1.0 / images[0].numel())


def _l2_lengths(values: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(values, dim=(1, 2, 3), keepdim=True)
    return lengths.clamp_min_(TINY)
