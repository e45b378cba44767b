"""The base of all networks: normalisation, representation and logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Network(nn.Module):
    """A classifier of images in [0, 1].

    `features` maps normalised images (N, C, H, W) to the penultimate representation (N, D); `head` maps these to
    logits (N, K). Mean and standard deviation per channel are buffers, so they are saved with the weights.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, features: nn.Module, head: nn.Linear, channels: int) -> None:
        super().__init__()
        self.features = features
        self.head = head
        self.register_buffer("mean", torch.zeros(1, channels, 1, 1))
        self.register_buffer("std", torch.ones(1, channels, 1, 1))

    def set_normalisation(self, mean: Tensor, std: Tensor) -> None:
        """Set the mean and the standard deviation (C,), above 0, of the training images."""
        self.mean.copy_(mean.view_as(self.mean))
        self.std.copy_(std.view_as(self.std))

    def normalise(self, images: Tensor) -> Tensor:
        """Normalise images (N, C, H, W) in [0, 1], as input of `features`."""
        return (images - self.mean) / self.std

    def representation(self, images: Tensor) -> Tensor:
        """g(x), the penultimate layer (N, D), of images (N, C, H, W) in [0, 1]."""
        representation: Tensor = self.features(self.normalise(images))
        return representation

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N, K) of images (N, C, H, W) in [0, 1]."""
        logits: Tensor = self.head(self.representation(images))
        return logits


def is_composed(network: Network) -> bool:
    """Whether the network's logits are head(features(normalised images)).

    A subclass may compute others, and so may a hook, or a method of this one object.
    """
    kind = type(network)
    if kind.forward is not Network.forward or kind.representation is not Network.representation:
        return False
    if {"forward", "representation"} & vars(network).keys():
        return False
    return not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


class GlobalAveragePool(nn.Module):
    """The mean over all pixels, (N, C) of (N, C, H, W)."""

    def forward(self, images: Tensor) -> Tensor:
        # Networks run in the channels-last layout. The gradient of torch's own average pooling has the other layout.
        return images.permute(0, 2, 3, 1).flatten(1, 2).mean(1)
