"""Accuracy of a network on images in memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BATCH = 512


def predictions(model: nn.Module, images: Tensor) -> Tensor:
    """The predicted class (N,) of each image (N, C, H, W), in eval mode; the mode is as before on return."""
    training = model.training
    model.eval()
    with torch.no_grad():
        predicted = torch.cat([model(batch).argmax(dim=1) for batch in torch.split(images, BATCH)])
    model.train(training)
    return predicted


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of right predictions, 0 to 1."""
    return (predictions(model, images) == labels).double().mean().item()
