"""The one loop behind every gradient attack of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from robustfeatures.attacks.norms import Norm
from robustfeatures.attacks.objectives import Objective


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """The model in eval mode without gradients of its parameters; both are as before on leaving.

    Running statistics are therefore never touched, and one backward pass costs about half. Of each module only
    `training` is set; a `train()` of its own is not called.
    """
    training = [module for module in model.modules() if module.training]
    required = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for module in training:
        module.training = False
    for parameter in required:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in required:
            parameter.requires_grad_(True)
        for module in training:
            module.training = True


def gradient_ascent(
    objective: Objective,
    start: Tensor,
    *,
    norm: Norm,
    step_size: float,
    steps: int,
    origin: Tensor | None = None,
    eps: float | None = None,
    progress: Callable[[int], None] = lambda steps: None,
) -> Tensor:
    """`steps` steps up the objective from `start`, inside [0, 1] and, where `eps` is given, a ball round `origin`.

    The objective is a sum over images, so an image's path depends on no other image of its batch.
    `progress` is told the steps done so far, after each; on a GPU these may only have been asked for.
    """
    images = start.detach()
    # Filled on the device: a copy of a number from the host would make it wait.
    length = images.new_full((), step_size)
    radius = None if eps is None else images.new_full((), eps)
    for step in range(steps):
        images = norm.step(images, objective.gradient(images), length)
        if origin is not None and radius is not None:
            images = norm.project(images, origin, radius)
        images = images.clamp_(0.0, 1.0)
        progress(step + 1)
    return images
