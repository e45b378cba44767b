"""The fast residual network of DAWNBench."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from robustfeatures.models.initialisation import he_normal
from robustfeatures.models.network import Network


class ConvolutionBlock(nn.Sequential):
    """A 3x3 convolution with batch norm and ReLU; with `pool`, max pooling by 2 too."""

    def __init__(self, channels_in: int, channels_out: int, *, pool: bool = False) -> None:
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv=nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False), bn=nn.BatchNorm2d(channels_out)
        )
        if pool:
            # Pooling before the ReLU gives the same values and gradients, because the ReLU is monotonic, in less time.
            layers["pool"] = nn.MaxPool2d(2)
        layers["relu"] = nn.ReLU()
        super().__init__(layers)


class Residual(nn.Module):
    """Two convolution blocks beside the identity; no ReLU follows the sum."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(ConvolutionBlock(channels, channels), ConvolutionBlock(channels, channels))

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = images + self.blocks(images)
        return result


class ScaledMaximum(nn.Module):
    """The maximum over all pixels, (N, C) of (N, C, H, W), times 1/8."""

    def forward(self, images: Tensor) -> Tensor:
        return images.amax((2, 3)) / 8


def resnet9(*, num_classes: int, image_shape: tuple[int, int, int], width: int = 64) -> Network:
    """ResNet-9, the fast residual network of DAWNBench; its representation has 8 `width` = 512 components.

    Page (2018), "How to Train Your ResNet", part 4 (github.com/davidcpage/cifar10-fast). First comes a convolution of
    `width` = 64 filters. Three layers of 2, 4 and 8 `width` filters follow, each pooled by 2. The first and the last of
    them end in a residual of two convolutions. The logits there are multiplied by 1/8. Here the representation is,
    which gives the same function. The head has a bias, which it lacks there. Convolutions start as in `he_normal`, the
    head as torch's default. Images must have at least 8 pixels a side, because of three poolings by 2.
    """
    features = nn.Sequential(
        OrderedDict(
            prep=ConvolutionBlock(image_shape[0], width),
            layer1=ConvolutionBlock(width, 2 * width, pool=True),
            residual1=Residual(2 * width),
            layer2=ConvolutionBlock(2 * width, 4 * width, pool=True),
            layer3=ConvolutionBlock(4 * width, 8 * width, pool=True),
            residual3=Residual(8 * width),
            pool=ScaledMaximum(),
        )
    )
    he_normal(features)
    return Network(features, nn.Linear(8 * width, num_classes), image_shape[0])
