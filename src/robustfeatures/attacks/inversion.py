"""Inversion of a representation: images that the network represents like the targets."""

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
    """Return images whose representation is close to the one of `targets`: not-bugs-2019, equation 6 and Figure 5.

    Minimises ||g(x) - g(targets)||_2 by normalised gradient descent from `start`. Each step has the length `step_size`;
    after it the images are clipped to [0, 1]. `start`, `targets` and the result are (N, C, H, W) in [0, 1].
    After each step, `progress` receives the number of steps done.

    Raises:
        ValueError: `step_size` or `steps` is negative or NaN.
    """
    with freeze(model):
        with torch.no_grad():
            goal = model.representation(targets)
        objective = minus_representation_distance(model, goal)
        return gradient_ascent(objective, start, norm=l2, step_size=step_size, steps=steps, progress=progress)
