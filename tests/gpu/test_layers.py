"""Each linear layer of a frozen network has, alone, the gradient of float64.

A layer with a wrong gradient makes attacks weak, and robust accuracies too high.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from robustfeatures.engine.frozen_network import FrozenNetwork
from tests.engine.test_frozen_network import SMALL, lived_in

LINEAR = (nn.Conv2d, nn.AvgPool2d, nn.Linear)


def record_layers(network: FrozenNetwork, images: Tensor) -> dict[str, tuple[nn.Module, Tensor]]:
    """The linear layers by name, each with its input, one of each kind and size."""
    found: dict[str, tuple[nn.Module, Tensor]] = {}

    def record(layer: nn.Module, inputs: tuple[Tensor], _: Tensor) -> None:
        found.setdefault(f"{layer} of {tuple(inputs[0].shape)}", (layer, inputs[0].detach()))

    layers = [module for module in network.modules() if isinstance(module, LINEAR)]
    hooks = [layer.register_forward_hook(record) for layer in layers]
    with torch.no_grad():
        network(images)
    for hook in hooks:
        hook.remove()
    return found


def gradient(layer: nn.Module, images: Tensor, towards: Tensor) -> Tensor:
    leaf = images.clone(memory_format=torch.preserve_format).requires_grad_(True)
    (found,) = torch.autograd.grad(layer(leaf), leaf, towards)
    return found.flatten(1).cpu().double()


# Gradients of a deep network with default weights are tiny. Attacks use the layout channels_last.
@pytest.mark.parametrize("size", [1.0, 1e-9])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("architecture", SMALL)
def test_the_gradient_of_each_layer_is_that_of_float64(
    device: torch.device, architecture: str, layout: torch.memory_format, size: float
) -> None:
    frozen_network = FrozenNetwork(lived_in(architecture, SMALL[architecture], device))
    layers = record_layers(frozen_network, torch.rand(6, 3, 32, 32).to(device))
    assert len(layers) > 2
    wrong = {}
    for name, (layer, inputs) in layers.items():
        if inputs.ndim == 4:
            layer.to(memory_format=layout)  # type: ignore[call-overload]
            inputs = inputs.contiguous(memory_format=layout)
        towards = size * torch.randn_like(layer(inputs))
        exact = gradient(copy.deepcopy(layer).cpu().double(), inputs.cpu().double(), towards.cpu().double())
        similarity = cosine_similarity(gradient(layer, inputs, towards), exact, eps=0).min()
        if not similarity > 1 - 1e-6:
            wrong[name] = float(similarity)
    assert not wrong
