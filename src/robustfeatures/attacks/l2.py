"""The Euclidean ball: normalised gradient steps, as in Madry et al. (2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from robustfeatures.attacks.norms import TINY


def step(images: Tensor, gradient: Tensor, step_size: Tensor) -> Tensor:
    """The images (N, C, H, W) moved by `step_size` along the normalised gradient."""
    return torch.addcmul(images, gradient, step_size / _lengths(gradient))


def project(images: Tensor, origin: Tensor, eps: Tensor) -> Tensor:
    """The images (N, C, H, W), those further than `eps` from `origin` moved towards it until they are at `eps`."""
    change = images - origin
    return torch.addcmul(origin, change, (eps / _lengths(change)).clamp_max_(1.0))


def random_start(images: Tensor, eps: float, generator: torch.Generator | None) -> Tensor:
    """A perturbation (N, C, H, W) drawn uniformly from the ball."""
    direction = torch.randn(images.shape, generator=generator).to(images)
    # The radius of a uniform point of a d-ball is distributed as U^(1/d).
    radius = torch.rand((len(images), 1, 1, 1), generator=generator).to(images)
    return direction / _lengths(direction) * eps * radius ** (1.0 / images[0].numel())


def _lengths(values: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(values, dim=(1, 2, 3), keepdim=True)
    return lengths.clamp_min_(TINY)
