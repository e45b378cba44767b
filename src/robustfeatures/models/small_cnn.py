"""A small convolutional network for images of 8 to 32 pixels, whose representation is narrower than its input."""

from __future__ import annotations

from torch import nn

from robustfeatures.models.network import GlobalAveragePool, Network


def small_cnn(*, num_classes: int, image_shape: tuple[int, int, int], width: int = 16) -> Network:
    """Two 3x3 convolutions of `width` and `2 * width` filters with batch norm and ReLU, pooled by 2, then averaged."""
    channels = image_shape[0]
    features = nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        # Before the ReLU, which is monotonic: the same values and gradients from a quarter of the ReLUs.
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        GlobalAveragePool(),
    )
    return Network(features, nn.Linear(2 * width, num_classes), channels)
