"""Inception-v3 for small images."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from robustfeatures.models.network import GlobalAveragePool, Network

Size = int | tuple[int, int]


class Branches(nn.Module):
    """Several branches on the same images; their output channels are concatenated."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([branch(images) for branch in self.branches], dim=1)


def _conv(channels: int, filters: int, kernel: Size, *, stride: int = 1, padding: Size | str = "same") -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(channels, filters, kernel, stride=stride, padding=padding, bias=False),
            bn=nn.BatchNorm2d(filters, eps=1e-3),
            relu=nn.ReLU(),
        )
    )


def _strided_conv(channels: int, filters: int) -> nn.Sequential:
    return _conv(channels, filters, 3, stride=2, padding=0)


def _pool_conv(channels: int, filters: int) -> nn.Sequential:
    # The same as AvgPool2d with padding=1, whose gradient may be wrong on a GPU (`engine/layout.py`).
    pool = nn.Sequential(nn.ZeroPad2d(1), nn.AvgPool2d(3, stride=1))
    return nn.Sequential(pool, _conv(channels, filters, 1))


def _inception_a(channels: int, pooled: int, unit: int) -> Branches:
    return Branches(
        _conv(channels, 4 * unit, 1),
        nn.Sequential(_conv(channels, 3 * unit, 1), _conv(3 * unit, 4 * unit, 5)),
        nn.Sequential(_conv(channels, 4 * unit, 1), _conv(4 * unit, 6 * unit, 3), _conv(6 * unit, 6 * unit, 3)),
        _pool_conv(channels, pooled),
    )


def _inception_b(channels: int, unit: int) -> Branches:
    return Branches(
        _strided_conv(channels, 24 * unit),
        nn.Sequential(_conv(channels, 4 * unit, 1), _conv(4 * unit, 6 * unit, 3), _strided_conv(6 * unit, 6 * unit)),
        nn.MaxPool2d(3, stride=2),
    )


def _inception_c(channels: int, inner: int, unit: int) -> Branches:
    return Branches(
        _conv(channels, 12 * unit, 1),
        nn.Sequential(
            _conv(channels, inner, 1),
            _conv(inner, inner, (1, 7)),
            _conv(inner, 12 * unit, (7, 1)),
        ),
        nn.Sequential(
            _conv(channels, inner, 1),
            _conv(inner, inner, (7, 1)),
            _conv(inner, inner, (1, 7)),
            _conv(inner, inner, (7, 1)),
            _conv(inner, 12 * unit, (1, 7)),
        ),
        _pool_conv(channels, 12 * unit),
    )


def _inception_d(channels: int, unit: int) -> Branches:
    return Branches(
        nn.Sequential(_conv(channels, 12 * unit, 1), _strided_conv(12 * unit, 20 * unit)),
        nn.Sequential(
            _conv(channels, 12 * unit, 1),
            _conv(12 * unit, 12 * unit, (1, 7)),
            _conv(12 * unit, 12 * unit, (7, 1)),
            _strided_conv(12 * unit, 12 * unit),
        ),
        nn.MaxPool2d(3, stride=2),
    )


def _split_conv(channels: int, unit: int) -> Branches:
    return Branches(_conv(channels, 24 * unit, (1, 3)), _conv(channels, 24 * unit, (3, 1)))


def _inception_e(channels: int, unit: int) -> Branches:
    return Branches(
        _conv(channels, 20 * unit, 1),
        nn.Sequential(_conv(channels, 24 * unit, 1), _split_conv(24 * unit, unit)),
        nn.Sequential(_conv(channels, 28 * unit, 1), _conv(28 * unit, 24 * unit, 3), _split_conv(24 * unit, unit)),
        _pool_conv(channels, 12 * unit),
    )


def inception_v3(*, num_classes: int, image_shape: tuple[int, int, int], width: int = 192) -> Network:
    """Inception-v3 without auxiliary head; its representation has 32 / 3 `width` = 2048 components.

    Szegedy, Vanhoucke, Ioffe, Shlens and Wojna (2016), "Rethinking the Inception Architecture for Computer Vision",
    Table 1 with the modules of Figures 5 to 7, in the form that H. Phan published for CIFAR-10 (PyTorch_CIFAR10): one
    3x3 convolution of `width` = 192 filters with stride 1 stands in for the five convolutions and two poolings before
    the first module, so that the modules see images of 32, 15 and 7 pixels instead of 35, 17 and 8. There is no
    dropout before the head. All layers start as torch's default. `width` must be a multiple of 12. Images must have at
    least 7 pixels a side, because of the two reductions. The modules have the letters of torchvision's classes.
    """
    unit = width // 12
    features = nn.Sequential(
        OrderedDict(
            conv1=_conv(image_shape[0], width, 3),
            mixed1=_inception_a(12 * unit, 2 * unit, unit),
            mixed2=_inception_a(16 * unit, 4 * unit, unit),
            mixed3=_inception_a(18 * unit, 4 * unit, unit),
            mixed4=_inception_b(18 * unit, unit),
            mixed5=_inception_c(48 * unit, 8 * unit, unit),
            mixed6=_inception_c(48 * unit, 10 * unit, unit),
            mixed7=_inception_c(48 * unit, 10 * unit, unit),
            mixed8=_inception_c(48 * unit, 12 * unit, unit),
            mixed9=_inception_d(48 * unit, unit),
            mixed10=_inception_e(80 * unit, unit),
            mixed11=_inception_e(128 * unit, unit),
            pool=GlobalAveragePool(),
        )
    )
    return Network(features, nn.Linear(128 * unit, num_classes), image_shape[0])
