"""Stochastic gradient descent with momentum, on torch's functional form.

`torch.optim.SGD` imports torch's compiler when it is made, a second in every one of a study's many short jobs.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd


class SGD:
    """The update of `torch.optim.SGD` with momentum and weight decay (L2, added to the gradient)."""

    def __init__(self, parameters: Iterable[nn.Parameter], *, momentum: float, weight_decay: float) -> None:
        self.parameters = list(parameters)
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.velocities: list[Tensor | None] = [None] * len(self.parameters)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Move every parameter that has a gradient."""
        gradients = {index: p.grad for index, p in enumerate(self.parameters) if p.grad is not None}
        velocities = [self.velocities[index] for index in gradients]
        sgd(
            [self.parameters[index] for index in gradients],
            list(gradients.values()),
            velocities,
            has_sparse_grad=False,
            foreach=True,
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            lr=learning_rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        for index, velocity in zip(gradients, velocities, strict=True):
            self.velocities[index] = velocity
