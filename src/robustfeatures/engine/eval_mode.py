"""Eval mode with frozen parameters, for attacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def freeze(model: nn.Module) -> Iterator[None]:
    """Set eval mode and freeze the parameters; restore both on exit.

    So running statistics stay the same, and a backward pass costs about half. The code sets the flag `training` of each
    module and does not call `train()`, which a module may override.
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
