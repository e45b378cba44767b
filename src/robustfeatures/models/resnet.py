"""ResNets for small images: the first convolution is 3x3 with stride 1, and no pooling follows it.

He, Zhang, Ren and Sun (2016), "Deep Residual Learning for Image Recognition", Table 1, in the form that is usual for
CIFAR. Layers have the names of the common public code (`conv1`, `bn1`, `layer1.0.conv1`, `layer2.0.shortcut.0`), so
that its weights load by name.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from robustfeatures.models.initialisation import he_normal
from robustfeatures.models.network import GlobalAveragePool, Network


def _make_shortcut(channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
    if stride == 1 and channels_in == channels_out:
        return nn.Sequential()
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False), nn.BatchNorm2d(channels_out)
    )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions of `filters` filters each, with batch norm, beside a shortcut (Figure 5, left)."""

    expansion = 1

    def __init__(self, channels_in: int, filters: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, filters, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.relu = nn.ReLU()
        self.shortcut = _make_shortcut(channels_in, filters, stride)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.relu(self.bn1(self.conv1(images)))
        result: Tensor = self.relu(self.bn2(self.conv2(hidden)) + self.shortcut(images))
        return result


class Bottleneck(nn.Module):
    """A 1x1, a 3x3 and a 1x1 convolution beside a shortcut (Figure 5, right); the 3x3 convolution has the stride."""

    expansion = 4

    def __init__(self, channels_in: int, filters: int, stride: int) -> None:
        super().__init__()
        channels_out = self.expansion * filters
        self.conv1 = nn.Conv2d(channels_in, filters, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.conv3 = nn.Conv2d(filters, channels_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU()
        self.shortcut = _make_shortcut(channels_in, channels_out, stride)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.relu(self.bn1(self.conv1(images)))
        hidden = self.relu(self.bn2(self.conv2(hidden)))
        result: Tensor = self.relu(self.bn3(self.conv3(hidden)) + self.shortcut(images))
        return result


def _build_resnet(
    block: type[BasicBlock] | type[Bottleneck],
    blocks: tuple[int, ...],
    num_classes: int,
    image_shape: tuple[int, int, int],
    width: int,
) -> Network:
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(image_shape[0], width, 3, padding=1, bias=False), bn1=nn.BatchNorm2d(width), relu=nn.ReLU()
    )
    channels = width
    for number, count in enumerate(blocks, start=1):
        filters = width * 2 ** (number - 1)
        group: list[nn.Module] = []
        for place in range(count):
            group.append(block(channels, filters, stride=2 if number > 1 and place == 0 else 1))
            channels = block.expansion * filters
        layers[f"layer{number}"] = nn.Sequential(*group)
    layers["pool"] = GlobalAveragePool()
    features = nn.Sequential(layers)
    he_normal(features)
    return Network(features, nn.Linear(channels, num_classes), image_shape[0])


def resnet18(*, num_classes: int, image_shape: tuple[int, int, int], width: int = 64) -> Network:
    """ResNet-18 for images of about 32 pixels; its representation has 8 `width` = 512 components.

    Four groups of two basic blocks, of `width`, 2, 4 and 8 `width` filters. Convolutions start as in `he_normal`, the
    head as torch's default. Any image size and number of channels is possible.
    """
    return _build_resnet(BasicBlock, (2, 2, 2, 2), num_classes, image_shape, width)


def resnet50(*, num_classes: int, image_shape: tuple[int, int, int], width: int = 64) -> Network:
    """ResNet-50 for images of about 32 pixels; its representation has 32 `width` = 2048 components.

    Four groups of 3, 4, 6 and 3 bottlenecks, of `width`, 2, 4 and 8 `width` inner filters. Convolutions start as
    in `he_normal`, the head as torch's default. Any image size and number of channels is possible.
    """
    return _build_resnet(Bottleneck, (3, 4, 6, 3), num_classes, image_shape, width)
