"""Derived sets of images as they are in another set: a network's predictions say which, and their labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.raw import Rows
from robustfeatures.engine.batches import batch_size, batches_of
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.derived.settings import Transferring
    from robustfeatures.engine.frozen_network import FrozenNetwork
    from robustfeatures.pipeline.run.job import Job


def misclassified(network: FrozenNetwork, original: ImageDataset, job: Job) -> ImageDataset:
    """The images whose predicted class is not their label, labelled with it, in their order.

    Raises:
        UserError: the network misclassifies none.
    """
    predicted = _predicted(network, original, job)
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
    return ImageDataset(Rows(original.images, wrong), predicted[wrong], provenance, original.class_names)


def transferring(network: FrozenNetwork, original: ImageDataset, method: Transferring, job: Job) -> ImageDataset:
    """The images that the network takes for their label or, by the method, those that it does not; in their order.

    Raises:
        UserError: there is none.
    """
    kept = np.flatnonzero((_predicted(network, original, job) == original.labels) == method.transfers)
    if not len(kept):
        found = "none" if method.transfers else "all"
        raise UserError(f"method.transfers: {found} of the {len(original)} images transfer to the source")
    provenance = {name: column[kept] for name, column in original.provenance.items()}
    return ImageDataset(Rows(original.images, kept), original.labels[kept], provenance, original.class_names)


def _predicted(network: FrozenNetwork, original: ImageDataset, job: Job) -> NDArray[np.int64]:
    images = batches_of(original, job.device)
    predicted = np.empty_like(original.labels)
    with job.computing(), torch.no_grad():
        for rows, batch in images.batches(torch.arange(len(original)), batch_size(job.device, original.image_shape)):
            predicted[rows.cpu().numpy()] = network(batch).argmax(dim=1).cpu().numpy()
    return predicted
