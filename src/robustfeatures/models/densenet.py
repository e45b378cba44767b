"""DenseNet-121 for small images."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from robustfeatures.models.initialisation import he_normal
from robustfeatures.models.network import GlobalAveragePool, Network

LAYERS = (6, 12, 24, 16)


class DenseLayer(nn.Module):
    """A 1x1 convolution of 4 `growth` filters and a 3x3 one of `growth`, whose channels precede those of the input."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.relu = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.conv1(self.relu(self.bn1(images)))
        # The order decides whether foreign weights give the right results; names and shapes fit either order.
        return torch.cat([self.conv2(self.relu(self.bn2(hidden))), images], dim=1)


def _make_transition(channels: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            bn=nn.BatchNorm2d(channels),
            relu=nn.ReLU(),
            conv=nn.Conv2d(channels, channels // 2, 1, bias=False),
            pool=nn.AvgPool2d(2),
        )
    )


def densenet121(*, num_classes: int, image_shape: tuple[int, int, int], width: int = 64) -> Network:
    """DenseNet-121; its representation has 16 `width` = 1024 components.

    Huang, Liu, van der Maaten and Weinberger (2017), "Densely Connected Convolutional Networks", Table 1, in the form
    that is usual for CIFAR: the first convolution is 3x3 with stride 1 and 2 `growth` = `width` filters, and no pooling
    follows it. Four blocks of 6, 12, 24 and 16 layers with growth rate `width` / 2 = 32; transitions halve the channels
    and the image. Layers have the names of the common public code (`dense1.0.conv1`, `trans1.conv`). Convolutions start
    as in `he_normal`, the head as torch's default with biases 0, as in the authors' code. `width` must be even. Images
    must have at least 8 pixels a side, because of three poolings by 2.
    """
    growth = width // 2
    layers: OrderedDict[str, nn.Module] = OrderedDict(conv1=nn.Conv2d(image_shape[0], width, 3, padding=1, bias=False))
    channels = width
    for number, count in enumerate(LAYERS, start=1):
        layers[f"dense{number}"] = nn.Sequential(
            *(DenseLayer(channels + place * growth, growth) for place in range(count))
        )
        channels += count * growth
        if number < len(LAYERS):
            layers[f"trans{number}"] = _make_transition(channels)
            channels //= 2
    layers["bn"] = nn.BatchNorm2d(channels)
    layers["relu"] = nn.ReLU()
    layers["pool"] = GlobalAveragePool()
    features = nn.Sequential(layers)
    he_normal(features)
    head = nn.Linear(channels, num_classes)
    nn.init.zeros_(head.bias)
    return Network(features, head, image_shape[0])
