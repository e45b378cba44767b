"""Residual networks with pre-activation for small images: WRN-34-10 and the four-group ResNet.

The residual unit is from He, Zhang, Ren and Sun (2016), "Identity Mappings in Deep Residual Networks", Figure 1(b):
batch norm and activation come before each convolution.
"""

from __future__ import annotations

from collections import OrderedDict

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from robustfeatures.models.initialisation import he_normal
from robustfeatures.models.network import GlobalAveragePool, Network


class PreActivationBlock(nn.Module):
    """Two 3x3 convolutions, each after batch norm and activation, beside a shortcut.

    With `shared` the shortcut also takes the input after the first activation. `slope` is the slope of the activation
    below 0; 0 is ReLU.
    """

    def __init__(
        self, channels_in: int, channels_out: int, stride: int, *, shortcut: nn.Module, shared: bool, slope: float
    ) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.activation = nn.LeakyReLU(slope)
        self.shortcut = shortcut
        self.shared = shared

    def forward(self, images: Tensor) -> Tensor:
        activated = self.activation(self.bn1(images))
        hidden = self.conv2(self.activation(self.bn2(self.conv1(activated))))
        result: Tensor = hidden + self.shortcut(activated if self.shared else images)
        return result


class PaddingShortcut(nn.Module):
    """Average pooling by `stride`, then channels of zeros on both sides: a shortcut without parameters."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        # Round an odd side up, like the convolution in parallel. With `count_include_pad` a compiled network has wrong
        # gradients in the last row and column then (pytorch/pytorch, issue 198119).
        self.pool = nn.AvgPool2d(stride, ceil_mode=True, count_include_pad=False)
        self.before = (channels_out - channels_in) // 2
        self.after = channels_out - channels_in - self.before

    def forward(self, images: Tensor) -> Tensor:
        return F.pad(self.pool(images), (0, 0, 0, 0, self.before, self.after))


def _build_network(
    groups: list[list[PreActivationBlock]],
    stem: int,
    slope: float,
    num_classes: int,
    image_shape: tuple[int, int, int],
) -> Network:
    channels = groups[-1][-1].conv2.out_channels
    layers: OrderedDict[str, nn.Module] = OrderedDict(conv1=nn.Conv2d(image_shape[0], stem, 3, padding=1, bias=False))
    for number, group in enumerate(groups, start=1):
        layers[f"layer{number}"] = nn.Sequential(*group)
    layers["bn1"] = nn.BatchNorm2d(channels)
    layers["activation"] = nn.LeakyReLU(slope)
    layers["pool"] = GlobalAveragePool()
    features = nn.Sequential(layers)
    he_normal(features)
    head = nn.Linear(channels, num_classes)
    nn.init.zeros_(head.bias)
    return Network(features, head, image_shape[0])


def wrn_34_10(*, num_classes: int, image_shape: tuple[int, int, int], width: int = 160) -> Network:
    """WRN-34-10; its representation has 4 `width` = 640 components.

    Zagoruyko and Komodakis (2016), "Wide Residual Networks", Table 1 with depth 34 and factor 10, without dropout: a
    convolution of 16 filters, then three groups of five units of `width` = 160, 320 and 640 filters. Where a unit
    changes the number of channels, its shortcut is a 1x1 convolution of the activated images. Convolutions start as in
    `he_normal`, the head as torch's default with biases 0, as in the authors' code. Any image size and number of
    channels is possible.
    """
    stem = 16
    groups: list[list[PreActivationBlock]] = []
    channels = stem
    for filters, first_stride in ((width, 1), (2 * width, 2), (4 * width, 2)):
        group: list[PreActivationBlock] = []
        for stride in (first_stride, 1, 1, 1, 1):
            changes = channels != filters or stride != 1
            shortcut = nn.Conv2d(channels, filters, 1, stride=stride, bias=False) if changes else nn.Identity()
            group.append(PreActivationBlock(channels, filters, stride, shortcut=shortcut, shared=changes, slope=0.0))
            channels = filters
        groups.append(group)
    return _build_network(groups, stem, 0.0, num_classes, image_shape)


def resnet_4x5(*, num_classes: int, image_shape: tuple[int, int, int], width: int = 16) -> Network:
    """The four-group ResNet of "Robustness May Be at Odds with Accuracy"; its representation has 4 `width` components.

    Tsipras, Santurkar, Engstrom, Turner and Madry (2019), Appendix A.2: "4 groups of residual layers with filter sizes
    (16, 16, 32, 64) and 5 residual units each", after a convolution of `width` = 16 filters. The last two groups halve
    the image. Details that the text does not give are from the code it refers to (MadryLab's cifar10_challenge):
    pre-activation, leaky ReLU of slope 0.1, shortcuts without parameters, and the very first activation shared with the
    shortcut. That code differs from the text in one point: it counts the first convolution as the first group.
    Convolutions start as in `he_normal`, the head as torch's default with biases 0. Any image size and number of
    channels is possible.
    """
    slope = 0.1
    groups: list[list[PreActivationBlock]] = []
    channels = width
    for filters, first_stride in ((width, 1), (width, 1), (2 * width, 2), (4 * width, 2)):
        group: list[PreActivationBlock] = []
        for stride in (first_stride, 1, 1, 1, 1):
            shortcut = nn.Identity() if channels == filters else PaddingShortcut(channels, filters, stride)
            shared = not groups and not group
            group.append(PreActivationBlock(channels, filters, stride, shortcut=shortcut, shared=shared, slope=slope))
            channels = filters
        groups.append(group)
    return _build_network(groups, width, slope, num_classes, image_shape)
