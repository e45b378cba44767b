"""Which images have no gradient that an attack can follow."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from robustfeatures.attacks.evaluating.task import AttackTask, Counts
from robustfeatures.attacks.norms import TINY
from robustfeatures.errors import UserError

# The diagnostic: images at which the gradient has no direction.
NO_GRADIENT = "no gradient"


def has_no_direction(gradient: Tensor) -> Tensor:
    """Whether a gradient (N, C, H, W) is shorter than 1e-20, or has values that are NaN or infinite, bool (N,)."""
    lengths = torch.linalg.vector_norm(gradient, dim=(1, 2, 3))
    directed: Tensor = (lengths >= TINY) & lengths.isfinite()
    return ~directed


def find_gradient(loss: Tensor, images: Tensor) -> Tensor:
    """The gradient of a loss () with respect to images (N, C, H, W), in the same shape.

    Raises:
        UserError: the loss does not depend on the images.
    """
    gradient = torch.autograd.grad(loss, images, allow_unused=True)[0] if loss.requires_grad else None
    if gradient is None:
        raise UserError(
            "model: its logits have no gradient (detach, no_grad or numpy in `forward`?), so attacks by gradient "
            "cannot judge it; the attack noise can"
        )
    return gradient


def count_without_gradient(task: AttackTask, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Count the images without a direction of `loss` (logits, classes), among those robust at the smallest radius.

    The counts are those of `Counts`, int64 (R, 2), and 0 at all other radii.
    """
    counts = Counts(len(task.radii), task.labels.device)
    positions = task.robust[:, 0].nonzero().squeeze(1)
    if not len(positions):
        # Not every network accepts a batch without images.
        return counts.counts
    read = task.images.batches(task.rows[positions.cpu()], task.batch_size)
    for chunk, (_, images) in zip(torch.split(positions, task.batch_size), read, strict=True):
        leaf = images.detach().requires_grad_(True)
        gradient = find_gradient(loss(task.network(leaf), task.labels[chunk]).sum(), leaf)
        counts.add(torch.zeros_like(chunk), has_no_direction(gradient))
    return counts.counts
