"""Accuracy of a network on a split."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robustfeatures.engine.batch_size import fit_batch_size
from robustfeatures.engine.eval_mode import freeze
from robustfeatures.engine.layout import convert_layout
from robustfeatures.engine.precision import autocast

if TYPE_CHECKING:
    from robustfeatures.engine.batches import Batches
    from robustfeatures.engine.settings import Precision


def predict(model: nn.Module, images: Batches, *, precision: Precision = "float32") -> Tensor:
    """Predict the class (N,) of each image in eval mode; afterwards the mode of the model is restored."""
    rows = torch.arange(len(images))

    def classify(size: int) -> Tensor:
        batches = (convert_layout(batch, torch.channels_last) for _, batch in images.batches(rows, size))
        return torch.cat([model(batch).argmax(dim=1) for batch in batches])

    with freeze(model), torch.no_grad(), autocast(images.device, precision):
        return fit_batch_size(model, images.device, images.image_shape).fit(classify)


def accuracy(model: nn.Module, images: Batches, labels: Tensor, *, precision: Precision = "float32") -> float:
    """Return the share of correct predictions, 0 to 1; `labels` (N,) are on the device of the images."""
    return (predict(model, images, precision=precision) == labels).double().mean().item()
