"""The derived images that transfer to another network, or those that do not (two-pathways-2021, Section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robustfeatures.derived.derivation import Derivation, select_images
from robustfeatures.engine.batches import load_batches
from robustfeatures.errors import UserError
from robustfeatures.training.accuracy import predict

if TYPE_CHECKING:
    import torch

    from robustfeatures.data.dataset import ImageDataset
    from robustfeatures.derived.settings import Transferring
    from robustfeatures.engine.frozen_network import FrozenNetwork


def derive(
    network: FrozenNetwork, original: ImageDataset, method: Transferring, *, seed: int, device: torch.device
) -> Derivation:
    """The images that the network classifies as their label if `method.transfers`, else the others; in their order.

    Raises:
        UserError: there is no such image.
    """
    predicted = predict(network, load_batches(original, device)).cpu().numpy()
    kept = np.flatnonzero((predicted == original.labels) == method.transfers)
    if not len(kept):
        found = "none" if method.transfers else "all"
        raise UserError(f"method.transfers: {found} of the {len(original)} images transfer to the source")
    provenance = {name: column[kept] for name, column in original.provenance.items()}
    return select_images(original, kept, original.labels[kept], provenance)
