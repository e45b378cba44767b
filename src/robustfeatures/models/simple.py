"""The two simplest networks: linear, and one hidden layer."""

from __future__ import annotations

from math import prod

from torch import nn

from robustfeatures.models.network import Network


def linear(*, num_classes: int, image_shape: tuple[int, int, int]) -> Network:
    """A linear classifier; its representation is the flattened, normalised image (C H W components).

    Weights and biases start as torch's default.
    """
    return Network(nn.Flatten(), nn.Linear(prod(image_shape), num_classes), image_shape[0])


def two_layer_relu(*, num_classes: int, image_shape: tuple[int, int, int], width: int = 512) -> Network:
    """One hidden layer of `width` ReLU units; its representation is that layer after the ReLU (`width` components).

    The default width is this package's choice, not a paper's. Weights and biases start as torch's default.
    """
    features = nn.Sequential(nn.Flatten(), nn.Linear(prod(image_shape), width), nn.ReLU())
    return Network(features, nn.Linear(width, num_classes), image_shape[0])
