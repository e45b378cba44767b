"""Inversion of a representation: the images a network cannot tell from the targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.attacks import l2
from robustfeatures.attacks.gradient_ascent import gradient_ascent
from robustfeatures.attacks.objectives import minus_representation_distance
from robustfeatures.engine.eval_mode import freeze

if TYPE_CHECKING:
    from robustfeatures.engine.frozen_network import FrozenNetwork
    from robustfeatures.models.network import Network


def invert(
    model: Network | FrozenNetwork,
    start: Tensor,
    targets: Tensor,
    *,
    step_size: float,
    steps: int,
    progress: Callable[[int], None] = lambda steps: None,
) -> Tensor:
    """Images whose representation approaches that of `targets`: not-bugs-2019, equation 6 and Figure 5.

    Minimises ||g(x) - g(targets)||_2 by normalised gradient descent from `start`, clipped to [0, 1] after each step of
    length `step_size`. `start` and `targets` are (N, C, H, W) in [0, 1]; so is the result.
    `progress` is told the steps done so far, after each.
    """
    with freeze(model):
        with torch.no_grad():
            goal = model.representation(targets)
        objective = minus_representation_distance(model, goal)
        return gradient_ascent(objective, start, norm=l2, step_size=step_size, steps=steps, progress=progress)
