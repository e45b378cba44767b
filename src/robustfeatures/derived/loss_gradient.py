"""Loss gradients with respect to the images, as images (at-odds-2019, Figures 2 and 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from robustfeatures.attacks.gradients import loss_gradients, render_gradients
from robustfeatures.derived.derivation import Derivation, Progress, make_provenance

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset
    from robustfeatures.derived.settings import LossGradient
    from robustfeatures.engine.frozen_network import FrozenNetwork


def derive(
    network: FrozenNetwork, original: ImageDataset, method: LossGradient, *, seed: int, device: torch.device
) -> Derivation:
    """The loss gradient at each image, with the image's label; the seed is not used."""

    def images(rows: NDArray[np.int64], progress: Progress) -> NDArray[np.float32]:
        gradients = loss_gradients(
            network,
            torch.from_numpy(original.float_images(rows)).to(device),
            torch.from_numpy(original.labels[rows]).to(device),
        )
        progress(1)
        return render_gradients(gradients, method.deviations).cpu().numpy()

    return Derivation(original.labels, make_provenance(original), images)
