"""The baselines of the benchmarks: float32, channels-first, eager, as common libraries write them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


def _lengths(values: Tensor) -> Tensor:
    return values.flatten(1).norm(dim=1).clamp_min(1e-12).view(-1, 1, 1, 1)


def l2_ascent(
    model: nn.Module,
    start: Tensor,
    loss: Callable[[Tensor], Tensor],
    *,
    step_size: float,
    steps: int,
    origin: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    """Normalised gradient steps down `loss` in [0, 1], and in the ball round `origin` where one is given."""
    model.eval()
    images = start.clone().detach()
    for _ in range(steps):
        images.requires_grad_(True)
        model.zero_grad()
        loss(images).backward()
        assert images.grad is not None
        with torch.no_grad():
            images = images - step_size * images.grad / _lengths(images.grad)
            if origin is not None:
                change = images - origin
                images = origin + change * (eps / _lengths(change)).clamp(max=1)
            images = images.clamp(0, 1)
    return images


def targeted_pgd(model: nn.Module, images: Tensor, goal: Tensor, *, eps: float, step_size: float, steps: int) -> Tensor:
    """Targeted L2 PGD."""
    return l2_ascent(
        model,
        images,
        lambda x: functional.cross_entropy(model(x), goal),
        step_size=step_size,
        steps=steps,
        origin=images,
        eps=eps,
    )


def train_epoch(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    images: Tensor,
    labels: Tensor,
    batch_size: int,
    perturb: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> None:
    """One epoch of training on shuffled batches, each perturbed first where a function for that is given."""
    for rows in torch.randperm(len(images)).split(batch_size):
        batch, batch_labels = images[rows], labels[rows]
        if perturb is not None:
            batch = perturb(batch, batch_labels)
        model.train()
        optimiser.zero_grad()
        functional.cross_entropy(model(batch), batch_labels).backward()
        optimiser.step()
