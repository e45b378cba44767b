"""ResNet-9: its size, its start, and its function against the layers written out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from robustfeatures.models import create
from robustfeatures.models.network import Network

CIFAR = (3, 32, 32)


def resnet9(width: int) -> Network:
    torch.manual_seed(0)
    return create("resnet9", num_classes=10, image_shape=CIFAR, width=width)


def test_the_count_of_weights() -> None:
    # Page's layers, (inputs, filters) of each convolution, whose batch norm has two parameters per filter.
    layers = [(3, 64), (64, 128), (128, 128), (128, 128), (128, 256), (256, 512), (512, 512), (512, 512)]
    expected = sum(9 * inputs * filters + 2 * filters for inputs, filters in layers) + 512 * 10 + 10
    assert sum(weights.numel() for weights in resnet9(64).parameters()) == expected


@pytest.mark.parametrize(("width", "operations"), [(32, 0.19e9), (64, 0.76e9)])
def test_operations_of_a_forward_pass(width: int, operations: float) -> None:
    network = resnet9(width).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.rand(1, *CIFAR))
    assert counter.get_total_flops() == pytest.approx(operations, rel=0.02)


def test_it_computes_what_its_docstring_says() -> None:
    network = resnet9(4).eval().double()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for values in (module.weight, module.bias, module.running_mean, module.running_var):
                nn.init.uniform_(values, 0.5, 1.5)
    weights = network.features.state_dict()

    def block(images: Tensor, name: str) -> Tensor:
        hidden = F.conv2d(images, weights[f"{name}.conv.weight"], padding=1)
        parts = (weights[f"{name}.bn.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return F.relu(F.batch_norm(hidden, *parts))

    def residual(images: Tensor, name: str) -> Tensor:
        return images + block(block(images, f"{name}.blocks.0"), f"{name}.blocks.1")

    images = torch.rand(2, *CIFAR, dtype=torch.float64)
    hidden = F.max_pool2d(block(block(images, "prep"), "layer1"), 2)
    hidden = F.max_pool2d(block(residual(hidden, "residual1"), "layer2"), 2)
    hidden = residual(F.max_pool2d(block(hidden, "layer3"), 2), "residual3")
    # On images of 32 pixels the last maps have 4, as the published pooling by 4 needs.
    expected = 0.125 * F.max_pool2d(hidden, 4).flatten(1)
    with torch.no_grad():
        torch.testing.assert_close(network.representation(images), expected)
        torch.testing.assert_close(network(images), expected @ network.head.weight.T + network.head.bias)


def test_convolutions_start_from_he_normal() -> None:
    convolutions = [module for module in resnet9(32).modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 8
    for convolution in convolutions:
        weight = convolution.weight.detach()
        assert weight.var().item() == pytest.approx(2 / (convolution.out_channels * 9), rel=0.15)
        # The fourth standardised moment tells a normal distribution from a uniform one of the same variance.
        assert (weight / weight.std()).pow(4).mean().item() == pytest.approx(3, rel=0.2)


def test_gradients_reach_every_weight_and_the_images() -> None:
    network = resnet9(8)
    images = torch.rand(16, *CIFAR, requires_grad=True)
    F.cross_entropy(network(images), torch.arange(16) % 10).backward()
    for name, weights in (*network.named_parameters(), ("images", images)):
        assert weights.grad is not None, name
        assert weights.grad.isfinite().all(), name
        assert weights.grad.abs().max() > 0, name
