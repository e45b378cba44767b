"""A small convolutional network for images of 8 to 32 pixels, whose representation is narrower than its input."""

from __future__ import annotations

from torch import nn

from robustfeatures.models.network import Network


def _stage(channels_in: int, channels_out: int) -> list[nn.Module]:
    return [
        nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
    ]


def small_cnn(*, num_classes: int, image_shape: tuple[int, int, int], width: int = 16) -> Network:
    """Two 3x3 convolutions of `width` and `2 * width` filters with batch norm and ReLU, pooled by 2, then averaged."""
    channels = image_shape[0]
    layers: list[nn.Module] = []
    for index, filters in enumerate((width, 2 * width)):
        if index:
            layers.append(nn.MaxPool2d(2))
        layers += _stage(channels, filters)
        channels = filters
    features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Network(features, nn.Linear(channels, num_classes), image_shape[0])
