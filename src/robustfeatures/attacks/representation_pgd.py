"""NRF-PGD and RF-PGD: an attack through the representation of another network, which never sees its victim."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.attacks.gradient_ascent import gradient_ascent
from robustfeatures.attacks.norms import norm_named
from robustfeatures.attacks.objectives import minus_representation_distance
from robustfeatures.engine.eval_mode import freeze

if TYPE_CHECKING:
    from robustfeatures.attacks.settings import NormName
    from robustfeatures.engine.frozen_network import FrozenNetwork
    from robustfeatures.models.network import Network


def representation_pgd(
    extractor: Network | FrozenNetwork,
    images: Tensor,
    targets: Tensor,
    *,
    norm: NormName,
    eps: float,
    step_size: float,
    steps: int,
) -> Tensor:
    """Images near `images` whose representation approaches that of `targets`: adversarial-training-2025, Appendix A.2.

    Minimises ||g(x + delta) - g(target)||_2 over ||delta|| <= eps by projected gradient descent from delta = 0, clipped
    to [0, 1]; with g of a standard network it is the paper's NRF-PGD, with g of an adversarially trained one its
    RF-PGD. `images` and `targets` are (N, C, H, W) in [0, 1]; so is the result.
    """
    with freeze(extractor):
        with torch.no_grad():
            goal = extractor.representation(targets)
        return gradient_ascent(
            minus_representation_distance(extractor, goal),
            images,
            norm=norm_named(norm),
            step_size=step_size,
            steps=steps,
            origin=images,
            eps=eps,
        )
