"""The memory layout of images and weights: channels last, where torch computes right in it."""

from __future__ import annotations

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

# Channels in a block of oneDNN: 16 with AVX-512, 8 on older processors.
ONEDNN_BLOCK = 16


class Tracer(fx.Tracer):
    """Traces what a forward pass computes from a buffer, in place of its value, so that the buffer may change."""

    proxy_buffer_attributes = True


def choose_layout(network: nn.Module, device: torch.device) -> torch.memory_format:
    """The memory layout for training a network.

    oneDNN 3.12 on a CPU has a bug in the channels-last layout: the weight gradient of a strided 1x1 convolution writes
    out of bounds if there are fewer input channels than a block has (uxlfoundation/oneDNN, issue 6035).
    """
    narrow = any(
        isinstance(module, nn.Conv2d) and module.stride != (1, 1) and module.in_channels < ONEDNN_BLOCK
        for module in network.modules()
    )
    if device.type == "cpu" and narrow:
        return torch.contiguous_format
    # torch.fx cannot look into this wrapper of a training on several GPUs.
    return choose_attack_layout(network.module if isinstance(network, DistributedDataParallel) else network, device)


def choose_attack_layout(network: nn.Module, device: torch.device) -> torch.memory_format:
    """The memory layout for gradients with respect to images.

    On a GPU, torch has had a bug in the channels-last layout: the gradient of an average over windows that reach over
    the border is wrong (pytorch/pytorch, issue 188344).
    """
    return torch.contiguous_format if device.type == "cuda" and pads_averages(network) else torch.channels_last


def pads_averages(network: nn.Module) -> bool:
    """Whether a network takes averages over windows that reach over the border of the images (`padding`)."""
    if any(isinstance(module, nn.AvgPool2d) and module.padding not in (0, (0, 0)) for module in network.modules()):
        return True
    graph = network.graph if isinstance(network, fx.GraphModule) else Tracer().trace(network)
    calls = (node for node in graph.nodes if node.op == "call_function" and node.target is functional.avg_pool2d)
    return any(
        (call.args[3] if len(call.args) > 3 else call.kwargs.get("padding", 0)) not in (0, (0, 0)) for call in calls
    )


def convert_layout(images: Tensor, layout: torch.memory_format) -> Tensor:
    """The images (N, C, H, W) in this memory layout."""
    images = images.contiguous(memory_format=layout)
    if images.shape[1] == 1 and layout == torch.contiguous_format:
        # With one channel both layouts have the same bytes, so the line above changes nothing. But convolutions go by
        # the strides, and these may still be those of the other layout.
        images = images.squeeze(1).unsqueeze(1)
    return images
