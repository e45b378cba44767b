"""Images and weights get the layout in which torch computes right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.layout import choose_attack_layout, choose_layout, convert_layout
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.training.distributed import synchronised_batch_norms
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Augmentation, Training
from tests.engine.test_frozen_network import SMALL, lived_in


class Average(nn.Module):
    """An average by a function, after a convolution."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 16, 3)
        self.arguments, self.named = arguments, named

    def forward(self, images: Tensor) -> Tensor:
        return functional.avg_pool2d(self.convolution(images), *self.arguments, **self.named).flatten(1)


@pytest.mark.parametrize(
    ("network", "pads"),
    [
        (nn.AvgPool2d(3, stride=1, padding=1), True),
        (nn.Sequential(nn.ReLU(), nn.AvgPool2d(3, stride=1, padding=(0, 1))), True),
        (nn.AvgPool2d(2), False),
        (nn.Sequential(nn.ZeroPad2d(1), nn.AvgPool2d(3, stride=1)), False),
        (nn.MaxPool2d(3, stride=1, padding=1), False),
        (Average(3, 1, 1), True),
        (Average(3, stride=1, padding=1), True),
        (Average(2), False),
        (Average(3, 1, (0, 0)), False),
    ],
)
def test_averages_over_the_border_are_taken_in_the_plain_layout_on_a_gpu(network: nn.Module, pads: bool) -> None:
    for choose in (choose_layout, choose_attack_layout):
        expected = torch.contiguous_format if pads else torch.channels_last
        assert choose(network, torch.device("cuda")) is expected
        assert choose(network, torch.device("cpu")) is torch.channels_last


@pytest.mark.parametrize("padding", [0, 1])
def test_a_network_of_several_gpus_has_the_layout_of_one(padding: int) -> None:
    network = nn.Sequential(nn.BatchNorm2d(3), Average(3, stride=1, padding=padding))
    devices = torch.device("cpu"), torch.device("cuda")
    expected = [choose_layout(network, device) for device in devices]
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        with synchronised_batch_norms(network):
            parallel = DistributedDataParallel(network)
            assert [choose_layout(parallel, device) for device in devices] == expected
    finally:
        distributed.destroy_process_group()
    assert expected[1] is (torch.contiguous_format if padding else torch.channels_last)


@pytest.mark.parametrize("architecture", SMALL)
def test_the_networks_of_this_package_need_no_plain_layout_on_a_gpu(architecture: str) -> None:
    network = create(architecture, num_classes=7, image_shape=(3, 32, 32), width=SMALL[architecture])
    assert choose_layout(network, torch.device("cuda")) is torch.channels_last


def test_inceptions_average_is_that_of_a_padded_pool() -> None:
    (branch, *_) = (
        module
        for module in lived_in("inception-v3", 12, torch.device("cpu")).modules()
        if isinstance(module, nn.Sequential) and isinstance(module[0], nn.ZeroPad2d)
    )
    images = torch.rand(2, 5, 9, 9)
    assert torch.equal(branch(images), nn.AvgPool2d(3, stride=1, padding=1)(images))


def test_gradients_through_an_average_over_the_border(device: torch.device) -> None:
    """They are those of float64, with the layout that is chosen for the device."""
    torch.manual_seed(0)
    network = Network(Average(3, stride=1, padding=1), nn.Linear(16 * 36, 4), 3).to(device)
    images = torch.rand(4, 3, 8, 8).to(device)

    def gradient(model: nn.Module, images: Tensor) -> Tensor:
        leaf = images.clone().requires_grad_(True)
        (found,) = torch.autograd.grad(model(leaf)[:, 0].sum(), leaf)
        return found.cpu()

    found = gradient(FrozenNetwork(network), images).double()
    exact = gradient(network.cpu().double(), images.cpu().double())
    torch.testing.assert_close(found, exact, atol=1e-6, rtol=1e-4)


def crop(images: Tensor) -> Tensor:
    """Grey images as after cropping: contiguous in both layouts, with the strides of channels-last."""
    found = images.squeeze(1).unsqueeze(3).permute(0, 3, 1, 2)
    assert found.stride() != images.contiguous(memory_format=torch.contiguous_format).stride()
    return found


@pytest.mark.parametrize("given", [lambda images: images, crop])
def test_grey_images_in_the_plain_layout_are_convolved_there(given: Callable[[Tensor], Tensor]) -> None:
    images = given(torch.rand(2, 1, 6, 6))
    convolution = nn.Conv2d(1, 4, 3).requires_grad_(False)
    found = convolution(convert_layout(images, torch.contiguous_format))
    assert found.stride() == (64, 16, 4, 1)
    torch.testing.assert_close(found, convolution(images))


def test_a_narrow_resnet_is_trained_on_cropped_grey_images_in_the_plain_layout() -> None:
    """oneDNN's gradient of its strided convolutions writes out of bounds in channels-last."""
    network = create("resnet18", num_classes=2, image_shape=(1, 8, 8), width=4)
    seen: list[bool] = []
    for module in network.modules():
        if isinstance(module, nn.Conv2d) and module.stride != (1, 1):
            module.register_forward_pre_hook(
                lambda _, inputs: seen.append(inputs[0].is_contiguous(memory_format=torch.contiguous_format))
            )
    settings = Training(
        epochs=1, batch_size=4, learning_rate=0.01, augmentation=Augmentation(crop_padding=1), schedule="constant"
    )
    train(network, InMemory(torch.rand(8, 1, 8, 8)), torch.arange(8) % 2, settings, seed=0)
    assert seen == [True] * len(seen)
    assert seen
