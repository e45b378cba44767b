"""A small convolutional network for images of 8 to 32 pixels, whose representation is narrower than its input."""

from __future__ import annotations

from torch import nn

from robustfeatures.models.network import GlobalAveragePool, Network


def small_cnn(*, num_classes: int, image_shape: tuple[int, int, int], width: int = 16) -> Network:
    """Two 3x3 convolutions of `width` and 2 `width` filters; its representation has 2 `width` components.

    Each convolution has batch norm and ReLU. Max pooling by 2 follows the first, global average pooling the second.
    """
    channels = image_shape[0]
    features = nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        # Pooling before the ReLU gives the same values and gradients, because the ReLU is monotonic, in less time.
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        GlobalAveragePool(),
    )
    return Network(features, nn.Linear(2 * width, num_classes), channels)
