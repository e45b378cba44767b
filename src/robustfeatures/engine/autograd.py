"""Gradients of functions of a point by autograd, for scipy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


def with_gradient(function: Callable[[Tensor], Tensor]) -> Callable[[Array], tuple[float, Array]]:
    """A function of a point (d,) that returns the value () of `function` there and its gradient (d,), in float64.

    `scipy.optimize.minimize` takes such functions with `jac=True`.
    """

    def value_and_gradient(point: Array) -> tuple[float, Array]:
        leaf = torch.from_numpy(point).requires_grad_()
        value = function(leaf)
        (gradient,) = torch.autograd.grad(value, leaf)
        return value.item(), gradient.numpy()

    return value_and_gradient
