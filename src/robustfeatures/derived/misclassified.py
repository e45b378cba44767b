"""The images that a network misclassifies, unchanged, with its predictions as labels (Wallace, 2019)."""

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
    from robustfeatures.derived.settings import Misclassified
    from robustfeatures.engine.frozen_network import FrozenNetwork


def derive(
    network: FrozenNetwork, original: ImageDataset, method: Misclassified, *, seed: int, device: torch.device
) -> Derivation:
    """The images whose predicted class is not their label, in their order; the prediction becomes the label.

    Raises:
        UserError: the network misclassifies no image.
    """
    predicted = predict(network, load_batches(original, device)).cpu().numpy()
    wrong = np.flatnonzero(predicted != original.labels)
    if not len(wrong):
        raise UserError(f"method.errors: the source classifies all {len(original)} images right")
    none = np.full_like(wrong, -1)
    provenance = {
        "source_index": original.provenance["source_index"][wrong],
        "source_label": original.labels[wrong],
        "start_index": none,
        "target": none,
    }
    return select_images(original, wrong, predicted[wrong], provenance)
