"""Convolutions whose weights torch cannot train in bfloat16 on a processor.

oneDNN 3.12 has a bug: in bfloat16, the gradient of the weights of a convolution may hold what the memory held before,
if the images there are narrower than the stride. It may be 1e36 or NaN. Logits and gradients of images are right.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robustfeatures.engine.eval_mode import freeze


def find_narrow_convolutions(network: nn.Module, image_shape: tuple[int, int, int]) -> list[str]:
    """The names of the convolutions that get images narrower than their stride, and look beyond one pixel.

    `network` classifies images (N, C, H, W) of shape `image_shape` (C, H, W). Calls of `torch.nn.functional` are not
    seen.
    """
    found: list[str] = []

    def note(name: str, module: nn.Conv2d, images: Tensor) -> None:
        if images.shape[-1] < module.stride[1]:
            found.append(name)

    handles = [
        module.register_forward_pre_hook(
            lambda module, inputs, named, name=name: note(name, module, *inputs, *named.values()), with_kwargs=True
        )
        for name, module in network.named_modules()
        if isinstance(module, nn.Conv2d) and (module.kernel_size[1] > 1 or module.padding not in (0, (0, 0), "valid"))
    ]
    try:
        with freeze(network), torch.no_grad():
            # Own networks have been tried with two images.
            network(torch.zeros(2, *image_shape))
    finally:
        for handle in handles:
            handle.remove()
    return found
