"""What a step, a ball and a random start mean in each norm."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

# Below this length a gradient carries no direction; dividing by the floor leaves a zero gradient zero.
TINY = 1e-12


class Norm(Protocol):
    """The three things that differ between balls; images are (N, C, H, W), lengths () or (N, 1, 1, 1).

    They are not for autograd to go back through.
    """

    def step(self, images: Tensor, gradient: Tensor, step_size: Tensor) -> Tensor:
        """The images after the move of length `step_size` that raises the loss most, (N, C, H, W)."""
        ...

    def project(self, images: Tensor, origin: Tensor, eps: Tensor) -> Tensor:
        """The images of the ball of radius `eps` round `origin` that are nearest to `images`, (N, C, H, W)."""
        ...

    def random_start(self, images: Tensor, eps: float, generator: torch.Generator | None) -> Tensor:
        """A perturbation drawn uniformly from the ball, shaped like `images`."""
        ...


def _lengths(values: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(values, dim=(1, 2, 3), keepdim=True)
    return lengths.clamp_min_(TINY)


class L2:
    """Euclidean ball: normalised gradient steps, as in Madry et al. (2018) and spec A."""

    def step(self, images: Tensor, gradient: Tensor, step_size: Tensor) -> Tensor:
        return torch.addcmul(images, gradient, step_size / _lengths(gradient))

    def project(self, images: Tensor, origin: Tensor, eps: Tensor) -> Tensor:
        change = images - origin
        return torch.addcmul(origin, change, (eps / _lengths(change)).clamp_max_(1.0))

    def random_start(self, images: Tensor, eps: float, generator: torch.Generator | None) -> Tensor:
        direction = torch.randn(images.shape, generator=generator).to(images)
        # The radius of a uniform point of a d-ball is distributed as U^(1/d).
        radius = torch.rand((len(images), 1, 1, 1), generator=generator).to(images)
        return direction / _lengths(direction) * eps * radius ** (1.0 / images[0].numel())


class Linf:
    """Maximum-norm ball: signed gradient steps."""

    def step(self, images: Tensor, gradient: Tensor, step_size: Tensor) -> Tensor:
        return torch.addcmul(images, gradient.sign(), step_size)

    def project(self, images: Tensor, origin: Tensor, eps: Tensor) -> Tensor:
        return origin + (images - origin).clamp(-eps, eps)

    def random_start(self, images: Tensor, eps: float, generator: torch.Generator | None) -> Tensor:
        return (torch.rand(images.shape, generator=generator).to(images) * 2 - 1) * eps


NORMS: dict[str, Norm] = {"l2": L2(), "linf": Linf()}
