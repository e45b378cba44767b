"""VGG-16 for small images."""

from __future__ import annotations

from torch import nn

from robustfeatures.models.initialisation import he_normal
from robustfeatures.models.network import GlobalAveragePool, Network

# Filters of each convolution in units of the width; a group ends with pooling (configuration D).
GROUPS = ((1, 1), (2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 8))


def vgg16(*, num_classes: int, image_shape: tuple[int, int, int], width: int = 64) -> Network:
    """VGG-16 with batch norm and one linear layer; its representation has 8 `width` = 512 components.

    Simonyan and Zisserman (2015), "Very Deep Convolutional Networks for Large-Scale Image Recognition", Table 1, D, in
    the form that is usual for CIFAR: the 13 convolutions are followed by batch norm (Ioffe and Szegedy, 2015) and
    ReLU, and one linear layer after the last pooling replaces the three of the paper. For images larger
    than 32 pixels, the last feature maps are averaged first. Convolutions start as in `he_normal`, the head as torch's
    default. Images must have at least 32 pixels a side, because of five poolings by 2.
    """
    layers: list[nn.Module] = []
    channels = image_shape[0]
    for group in GROUPS:
        for factor in group:
            filters = factor * width
            # A bias before a batch norm has no effect, but the published networks have it.
            layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.BatchNorm2d(filters), nn.ReLU()]
            channels = filters
        layers.append(nn.MaxPool2d(2))
    features = nn.Sequential(*layers, GlobalAveragePool())
    he_normal(features)
    return Network(features, nn.Linear(channels, num_classes), image_shape[0])
