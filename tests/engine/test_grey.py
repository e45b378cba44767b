"""Grey images: the gradient of their convolution, and a layout that torch cannot tell from the other by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.grey import GreyConvolution
from robustfeatures.engine.precision import laid_out
from robustfeatures.engine.prepared import Prepared
from robustfeatures.models import create
from robustfeatures.recipes.parameters import Augmentation, Training
from robustfeatures.training.loop import train


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [
        (3, 1, 1, 1),
        (5, 1, 2, 1),
        (3, 3, 0, 1),
        (2, 2, 0, 1),
        (3, 2, 1, 1),
        ((3, 5), (2, 1), (0, 2), 1),
        (3, 1, 2, 2),
        (1, 1, 0, 1),
    ],
)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gradient_is_autograds(
    kernel: int | tuple[int, int],
    stride: int | tuple[int, int],
    padding: int | tuple[int, int],
    dilation: int,
    layout: torch.memory_format,
) -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(1, 7, kernel, stride, padding, dilation, dtype=torch.float64).requires_grad_(False)
    images = torch.rand(4, 1, 10, 13, dtype=torch.float64, requires_grad=True)
    expected = plain(images)
    weights = torch.randn_like(expected).contiguous(memory_format=layout)
    found = GreyConvolution(plain)(images)
    assert torch.equal(found, expected)
    (gradient,) = torch.autograd.grad((found * weights).sum(), images)
    (reference,) = torch.autograd.grad((expected * weights).sum(), images)
    assert reference.abs().max() > 0
    torch.testing.assert_close(gradient, reference, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("channels", "precision", "used"), [(1, "float32", 1), (3, "float32", 0), (1, "bfloat16", 0)])
def test_where_it_is_used(channels: int, precision: str, used: int) -> None:
    network = create("mnist-cnn", num_classes=3, image_shape=(channels, 8, 8), width=2)
    before = torch.get_rng_state()
    prepared = Prepared(network, precision=precision)  # type: ignore[arg-type]
    assert torch.equal(torch.get_rng_state(), before)
    assert sum(isinstance(module, GreyConvolution) for module in prepared.modules()) == used


@pytest.mark.parametrize("architecture", ["small-cnn", "mnist-cnn", "resnet18"])
def test_prepared_networks_give_the_networks_numbers(architecture: str) -> None:
    torch.manual_seed(0)
    network = create(architecture, num_classes=5, image_shape=(1, 9, 7), width=4)
    network.normalise(torch.tensor([0.3]), torch.tensor([0.2]))
    prepared = Prepared(network.eval())
    network.train()
    for _ in range(3):
        network(torch.rand(16, 1, 9, 7))
    network.eval()
    prepared.refresh()
    images = torch.rand(6, 1, 9, 7)
    gradients = []
    for model in (prepared, network):
        leaf = images.clone().requires_grad_(True)
        gradients += torch.autograd.grad(model(leaf)[:, 0].sum(), leaf)
    assert gradients[1].abs().max() > 1e-3
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-4)


def cropped(images: Tensor) -> Tensor:
    """As cropping leaves grey images: contiguous in either layout, with the strides of channels-last."""
    found = images.squeeze(1).unsqueeze(3).permute(0, 3, 1, 2)
    assert found.stride() != images.contiguous(memory_format=torch.contiguous_format).stride()
    return found


@pytest.mark.parametrize("given", [lambda images: images, cropped])
def test_grey_images_in_the_plain_layout_are_convolved_there(given: Callable[[Tensor], Tensor]) -> None:
    images = given(torch.rand(2, 1, 6, 6))
    convolution = nn.Conv2d(1, 4, 3).requires_grad_(False)
    found = convolution(laid_out(images, torch.contiguous_format))
    assert found.stride() == (64, 16, 4, 1)
    torch.testing.assert_close(found, convolution(images))


def test_a_narrow_resnet_is_trained_on_cropped_grey_images_in_the_plain_layout() -> None:
    """oneDNN's gradient of its strided convolutions writes out of bounds in the other."""
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
