"""A model as attacks need it: in eval mode, with frozen parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def freeze(model: nn.Module) -> Iterator[None]:
    """The model in eval mode, its parameters without gradients; both are as before on leaving.

    So no running statistics change, and a backward pass costs about half. Of each module only `training` is set; its
    own `train()` is not called.
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
