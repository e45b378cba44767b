"""Stochastic gradient descent with momentum, and Adam, on the functional forms of torch.

`torch.optim.Optimizer` imports torch's compiler, which takes 1.3 s, about as long as the import of torch. A study has
many short jobs, so this counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

if TYPE_CHECKING:
    from robustfeatures.training.settings import Training

# Kingma and Ba (2015), "Adam": the decay of the second moment, and the constant that avoids a division by zero.
BETA_2 = 0.999
ADAM_EPSILON = 1e-8


class Optimiser:
    """Updates parameters by their gradients; `state` holds everything that is kept between two steps."""

    def __init__(self, parameters: Iterable[nn.Parameter], *, momentum: float, weight_decay: float) -> None:
        self.parameters = list(parameters)
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.state: dict[str, Any] = {}

    def zero_grad(self) -> None:
        """Delete the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from the `state` of an earlier run."""
        self.state = state

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Update every parameter that has a gradient."""
        gradients = {index: p.grad for index, p in enumerate(self.parameters) if p.grad is not None}
        self._update(gradients, learning_rate)

    def _update(self, gradients: Mapping[int, Tensor], learning_rate: float) -> None:
        raise NotImplementedError


class SGD(Optimiser):
    """The update of `torch.optim.SGD` with momentum and weight decay (L2, added to the gradient)."""

    def restore(self, state: dict[str, Any]) -> None:
        # The fused update of torch needs the memory layout of the parameters; a checkpoint of a GPU may have another.
        velocities = {
            index: torch.empty_like(self.parameters[index]).copy_(v) for index, v in state["velocities"].items()
        }
        self.state = {"velocities": velocities}

    def _update(self, gradients: Mapping[int, Tensor], learning_rate: float) -> None:
        saved: dict[int, Tensor] = self.state.setdefault("velocities", {})
        # A layer that the first steps skipped has no velocity yet, and torch takes all of them or none.
        for moving in (True, False):
            part = {index: gradient for index, gradient in gradients.items() if (index in saved) == moving}
            if part:
                self._update_part(part, saved, learning_rate)

    def _update_part(self, gradients: Mapping[int, Tensor], saved: dict[int, Tensor], learning_rate: float) -> None:
        velocities = [saved.get(index) for index in gradients]
        sgd(
            [self.parameters[index] for index in gradients],
            list(gradients.values()),
            velocities,
            has_sparse_grad=False,
            fused=True,
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            lr=learning_rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        # Without momentum the velocities stay None.
        saved.update((index, v) for index, v in zip(gradients, velocities, strict=True) if v is not None)


class Adam(Optimiser):
    """The update of `torch.optim.Adam`; weight decay is L2, added to the gradient, and momentum the first decay."""

    def restore(self, state: dict[str, Any]) -> None:
        # The step counts stay on the CPU, because torch reads each of them and would wait for a GPU.
        self.state = state | {"steps": {index: count.cpu() for index, count in state["steps"].items()}}

    def _update(self, gradients: Mapping[int, Tensor], learning_rate: float) -> None:
        if not self.state:
            for name in ("first", "second"):
                self.state[name] = {index: torch.zeros_like(p) for index, p in enumerate(self.parameters)}
            self.state["steps"] = {index: torch.zeros(()) for index in range(len(self.parameters))}
        adam(
            [self.parameters[index] for index in gradients],
            list(gradients.values()),
            [self.state["first"][index] for index in gradients],
            [self.state["second"][index] for index in gradients],
            [],
            [self.state["steps"][index] for index in gradients],
            foreach=True,
            amsgrad=False,
            beta1=self.momentum,
            beta2=BETA_2,
            lr=learning_rate,
            weight_decay=self.weight_decay,
            eps=ADAM_EPSILON,
            maximize=False,
        )


def build_optimiser(settings: Training, parameters: Iterable[nn.Parameter]) -> Optimiser:
    """Build the optimiser of the settings."""
    kind = Adam if settings.optimiser == "adam" else SGD
    return kind(parameters, momentum=settings.momentum, weight_decay=settings.weight_decay)
