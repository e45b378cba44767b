"""Gradient ascent on images: the loop that PGD, inversion and other attacks share.

Evaluations have another loop, which lets broken images leave (`evaluating/pgd.py`). Its steps are those of this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robustfeatures.engine.fast_path import has_fast_path

if TYPE_CHECKING:
    from robustfeatures.attacks.norms import Ball
    from robustfeatures.engine.cuda_graphs import CudaGraph, CudaGraphs

# Images (N, C, H, W) -> what the attack maximises, summed over the images, ().
Objective = Callable[[Tensor], Tensor]

PIXELS = (0.0, 1.0)


@dataclass(frozen=True)
class NetworkObjective:
    """An objective `value(network, images, target)`, (). Its tensors are known, so a CUDA graph can be recorded."""

    value: Callable[[nn.Module, Tensor, Tensor], Tensor]
    network: nn.Module
    target: Tensor

    def __call__(self, images: Tensor) -> Tensor:
        return self.value(self.network, images, self.target)


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
    """Do `steps` steps of gradient ascent on the objective from `start`, inside `bounds`.

    If `eps` is given, the images also stay in the ball round `origin`. The objective is a sum over images, so the path
    of an image does not depend on the other images of its batch. After each step, `progress` receives the number of
    steps done. On a GPU these steps may still be in the queue.

    Raises:
        ValueError: `step_size`, `steps` or `eps` is negative or NaN.
    """
    for name, value in (("eps", eps or 0.0), ("step_size", step_size), ("steps", steps)):
        # NaN fails this comparison too.
        if not value >= 0:
            raise ValueError(f"{name}: {value} is negative or NaN")
    images = start.detach().clone()
    origin = None if origin is None else origin.detach()
    # Filled on the device, because a copy from the host would wait for the device.
    step_tensor = images.new_full((), step_size)
    eps_tensor = None if eps is None else images.new_full((), eps)
    graph = _find_graph(objective, images, norm, step_tensor, origin, eps_tensor, bounds)
    if graph is not None:
        for step in range(steps):
            graph.replay()
            progress(step + 1)
        return graph.tensors["images"].clone()
    for step in range(steps):
        images = ascent_step(
            images,
            gradient(objective, images),
            norm=norm,
            step_size=step_tensor,
            origin=origin,
            eps=eps_tensor,
            bounds=bounds,
        )
        progress(step + 1)
    return images


def _find_graph(
    objective: Objective,
    images: Tensor,
    norm: Ball,
    step_size: Tensor,
    origin: Tensor | None,
    eps: Tensor | None,
    bounds: tuple[float, float] | None,
) -> CudaGraph | None:
    """Return the CUDA graph of one step, which begins at `images`; None if the step is to be computed the plain way."""
    if not (has_fast_path(images.device) and isinstance(objective, NetworkObjective)):
        return None
    # Only a frozen network has graphs. The weights of another may be replaced.
    graphs: CudaGraphs | None = getattr(objective.network, "graphs", None)
    if graphs is None:
        return None

    def step(images: Tensor, target: Tensor, **others: Tensor) -> Tensor:
        return ascent_step(
            images, gradient(replace(objective, target=target), images), norm=norm, bounds=bounds, **others
        )

    given = {
        "images": images,
        "target": objective.target,
        "step_size": step_size,
        "origin": origin,
        "eps": eps,
    }
    tensors = {name: values for name, values in given.items() if values is not None}
    return graphs.find((objective.value, norm, bounds), step, tensors)


def gradient(objective: Objective, images: Tensor) -> Tensor:
    """Return the gradient of the objective with respect to the images (N, C, H, W), in the same shape."""
    leaf = images.detach().requires_grad_(True)
    # The caller may be inside torch.no_grad().
    with torch.enable_grad():
        (input_gradient,) = torch.autograd.grad(objective(leaf), leaf)
    return input_gradient


def keep_finite(gradient: Tensor) -> Tensor:
    """The gradient with 0 in place of NaN and infinity, which give no direction."""
    return torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)


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
    """Move along the gradient, project on the ball round `origin`, then clip to `bounds`.

    `step_size` and `eps` are () or (N, 1, 1, 1).
    """
    images = norm.step(images, gradient, step_size)
    if origin is not None and eps is not None:
        images = norm.project(images, origin, eps)
    return images if bounds is None else images.clamp_(*bounds)
