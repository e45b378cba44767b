"""The one loop behind every gradient attack of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from robustfeatures.attacks.norms import Ball

# Images (N, C, H, W) -> the sum over images of what an attack raises, ().
Objective = Callable[[Tensor], Tensor]

PIXELS = (0.0, 1.0)


def gradient_ascent(
    objective: Objective,
    start: Tensor,
    *,
    norm: Ball,
    step_size: float,
    steps: int,
    origin: Tensor | None = None,
    eps: float | None = None,
    bounds: tuple[float, float] | None = PIXELS,
    progress: Callable[[int], None] = lambda steps: None,
) -> Tensor:
    """`steps` steps up the objective from `start`, inside `bounds` and, with `eps`, the ball round `origin`.

    The objective is a sum over images, so an image's path depends on no other image of its batch.
    `progress` is told the steps done so far, after each; on a GPU these may only have been asked for.
    """
    images = start.detach()
    # Filled on the device: a copy of a number from the host would make it wait.
    length = images.new_full((), step_size)
    radius = None if eps is None else images.new_full((), eps)
    for step in range(steps):
        found = gradient(objective, images)
        images = ascent_step(images, found, norm=norm, step_size=length, origin=origin, eps=radius, bounds=bounds)
        progress(step + 1)
    return images


def gradient(objective: Objective, images: Tensor) -> Tensor:
    """The gradient of the objective with respect to the images, in their shape."""
    leaf = images.detach().requires_grad_(True)
    (found,) = torch.autograd.grad(objective(leaf), leaf)
    return found


def ascent_step(
    images: Tensor,
    gradient: Tensor,
    *,
    norm: Ball,
    step_size: Tensor,
    origin: Tensor | None = None,
    eps: Tensor | None = None,
    bounds: tuple[float, float] | None = PIXELS,
) -> Tensor:
    """One step: along the gradient, then back into the ball round `origin`, then into `bounds`.

    `step_size` and `eps` are () or (N, 1, 1, 1).
    """
    images = norm.step(images, gradient, step_size)
    if origin is not None and eps is not None:
        images = norm.project(images, origin, eps)
    return images if bounds is None else images.clamp_(*bounds)
