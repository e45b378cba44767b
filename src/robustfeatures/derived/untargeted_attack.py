"""Untargeted adversarial examples with the original labels (at-odds-2019, Section 3, with a large radius)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from robustfeatures.attacks.projected_gradient_descent import pgd
from robustfeatures.derived.derivation import Derivation, Progress, make_provenance

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset
    from robustfeatures.derived.settings import UntargetedAttack
    from robustfeatures.engine.frozen_network import FrozenNetwork


def derive(
    network: FrozenNetwork, original: ImageDataset, method: UntargetedAttack, *, seed: int, device: torch.device
) -> Derivation:
    """Attack each image away from its label, which stays; the seed is not used."""

    def images(rows: NDArray[np.int64], progress: Progress) -> NDArray[np.float32]:
        adversarial = pgd(
            network,
            torch.from_numpy(original.float_images(rows)).to(device),
            torch.from_numpy(original.labels[rows]).to(device),
            norm=method.norm,
            eps=method.eps,
            step_size=method.step_size,
            steps=method.steps,
            progress=progress,
        )
        return adversarial.cpu().numpy()

    return Derivation(original.labels, make_provenance(original), images, method.steps)
