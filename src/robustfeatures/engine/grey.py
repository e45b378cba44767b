"""Convolutions of grey images, whose gradient oneDNN computes as if there were a whole block of channels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class GreyConvolution(nn.Module):
    """A frozen convolution of images (N, 1, H, W); its gradient by them is a matrix product, folded back to pixels."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = convolution.weight, convolution.bias
        self.kernel_size, self.stride = convolution.kernel_size, convolution.stride
        self.padding, self.dilation = convolution.padding, convolution.dilation

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = _Convolution.apply(images, self)  # type: ignore[no-untyped-call]
        return result


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, layer: GreyConvolution) -> Tensor:
        ctx.layer, ctx.shape = layer, images.shape
        return functional.conv2d(images, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        layer = ctx.layer
        weights = layer.weight.flatten(1).t().expand(len(gradient), -1, -1)
        shares = weights @ gradient.flatten(2)
        # The images as channels of one: torch goes through images one by one.
        folded = functional.fold(
            shares.flatten(0, 1)[None], ctx.shape[2:], layer.kernel_size, layer.dilation, layer.padding, layer.stride
        )
        return folded.view(ctx.shape), None


def with_grey_convolutions(network: nn.Module) -> None:
    """Put such a convolution in the place of each that takes one channel; padding is by zeros, as everywhere here."""
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.Conv2d) and module.in_channels == 1:
            network.set_submodule(name, GreyConvolution(module))
