"""Accuracy of a network on a split."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robustfeatures.engine.batches import choose_batch_size
from robustfeatures.engine.precision import autocast, convert_layout

if TYPE_CHECKING:
    from robustfeatures.engine.batches import Batches
    from robustfeatures.engine.settings import Precision


def predictions(model: nn.Module, images: Batches, *, precision: Precision = "float32") -> Tensor:
    """The predicted class (N,) of each image, in eval mode; the mode is as before on return."""
    training = model.training
    model.eval()
    everything = torch.arange(len(images))
    size = choose_batch_size(images.device, images.image_shape)
    found = []
    with torch.no_grad(), autocast(images.device, precision):
        for _, batch in images.batches(everything, size):
            found.append(model(convert_layout(batch, torch.channels_last)).argmax(dim=1))
    model.train(training)
    return torch.cat(found)


def accuracy(model: nn.Module, images: Batches, labels: Tensor, *, precision: Precision = "float32") -> float:
    """The share of right predictions, 0 to 1; `labels` (N,) on the device of the images."""
    return (predictions(model, images, precision=precision) == labels).double().mean().item()
