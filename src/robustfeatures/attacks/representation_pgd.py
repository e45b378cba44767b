"""NRF-PGD and RF-PGD: PGD on the representation of one network, to attack another network, the victim."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.attacks.gradient_ascent import gradient_ascent
from robustfeatures.attacks.norms import load_norm
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
    """Perturb `images` until their representation is close to the one of `targets`.

    Minimises ||g(x + delta) - g(target)||_2 over ||delta|| <= eps by projected gradient descent from delta = 0, clipped
    to [0, 1] (adversarial-training-2025, Appendix A.2). If g belongs to a standard network, this is the paper's
    NRF-PGD; if g belongs to an adversarially trained network, it is the paper's RF-PGD. `images`, `targets` and the
    result are (N, C, H, W) in [0, 1].

    Raises:
        ValueError: the norm is unknown, or `eps`, `step_size` or `steps` is negative or NaN.
    """
    with freeze(extractor):
        with torch.no_grad():
            goal = extractor.representation(targets)
        return gradient_ascent(
            minus_representation_distance(extractor, goal),
            images,
            norm=load_norm(norm),
            step_size=step_size,
            steps=steps,
            origin=images,
            eps=eps,
        )
