"""Convolutions whose weights torch cannot train in bfloat16 on a processor.

oneDNN 3.12 has a bug: in bfloat16, the gradient of the weights of a strided convolution holds what the memory held
before, if the images there are one pixel wide. It may be 1e36 or NaN. Logits and gradients of images are right.
(pytorch/pytorch, issue 169688, has the same for three dimensions.)
"""

from __future__ import annotations

import torch
from torch import nn

from robustfeatures.engine.eval_mode import freeze


def find_narrow_convolutions(network: nn.Module, image_shape: tuple[int, int, int]) -> list[str]:
    """The names of the strided convolutions, wider than a pixel, that get images one pixel wide.

    `network` classifies images (N, C, H, W) of shape `image_shape` (C, H, W).
    """
    found: list[str] = []

    def note(name: str, width: int) -> None:
        if width == 1:
            found.append(name)

    handles = [
        module.register_forward_pre_hook(lambda _, inputs, name=name: note(name, inputs[0].shape[-1]))
        for name, module in network.named_modules()
        if isinstance(module, nn.Conv2d) and module.stride != (1, 1) and module.kernel_size[1] > 1
    ]
    try:
        with freeze(network), torch.no_grad():
            network(torch.zeros(1, *image_shape))
    finally:
        for handle in handles:
            handle.remove()
    return found
