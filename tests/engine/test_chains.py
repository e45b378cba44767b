"""Chains of layers: gradients worked out by hand are autograd's; and a layout that torch cannot tell from the other."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn

from robustfeatures.attacks import invert
from robustfeatures.attacks.objectives import Objective
from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.chains import Chain, GreyConvolution, as_chain, with_chains
from robustfeatures.engine.precision import laid_out
from robustfeatures.engine.prepared import Prepared
from robustfeatures.models import create
from robustfeatures.models.network import GlobalAverage
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Augmentation, Training

LAYOUTS = [torch.contiguous_format, torch.channels_last]


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
        ((3, 1), 1, (2, 0), 1),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [(7, 9), (10, 13)])
def test_grey_convolutions_give_autograds_values_and_gradients(
    kernel: int | tuple[int, int],
    stride: int | tuple[int, int],
    padding: int | tuple[int, int],
    dilation: int,
    layout: torch.memory_format,
    size: tuple[int, int],
    *,
    bias: bool,
) -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(1, 7, kernel, stride, padding, dilation, bias=bias, dtype=torch.float64).requires_grad_(False)
    images = laid_out(torch.rand(4, 1, *size, dtype=torch.float64), layout).requires_grad_()
    expected = plain(images)
    weights = torch.randn_like(expected).contiguous(memory_format=layout)
    link = GreyConvolution(plain)
    found, kept = link.forward(images.detach())
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    (reference,) = torch.autograd.grad((expected * weights).sum(), images)
    assert reference.abs().max() > 0
    torch.testing.assert_close(link.backward(weights, kept), reference, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("size", "stride", "convolved"), [(8, 1, False), (16, 1, True), (8, 2, True)])
def test_small_grey_images_are_multiplied(
    monkeypatch: pytest.MonkeyPatch, size: int, stride: int, *, convolved: bool
) -> None:
    calls: list[Tensor] = []
    convolution = nn.functional.conv2d
    monkeypatch.setattr(nn.functional, "conv2d", lambda *given: (calls.append(given[0]), convolution(*given))[1])
    GreyConvolution(nn.Conv2d(1, 4, 3, stride, padding=1).requires_grad_(False)).forward(torch.rand(2, 1, size, size))
    assert bool(calls) == convolved


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "convolution": lambda: nn.Conv2d(4, 6, 3, padding=1),
    "strided": lambda: nn.Conv2d(4, 6, (3, 1), (2, 1), (1, 0), bias=False),
    "dilated, in groups": lambda: nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2),
    "of single pixels": lambda: nn.Conv2d(4, 6, 1),
    "pool": lambda: nn.MaxPool2d(2),
    "pool, rounded up": lambda: nn.MaxPool2d(2, ceil_mode=True),
    "pool, overlapping": lambda: nn.MaxPool2d(3, stride=2, padding=1),
    "rectifier": nn.ReLU,
    "average": GlobalAverage,
    "flattening": nn.Flatten,
    "product": lambda: nn.Sequential(nn.Flatten(), nn.Linear(4 * 7 * 9, 5)),
    "all": lambda: nn.Sequential(
        nn.Conv2d(4, 6, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(6, 8, 2), nn.ReLU(), GlobalAverage(), nn.Linear(8, 3)
    ),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_chains_give_autograds_values_and_gradients(layer: str, layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    plain = LAYERS[layer]().double().requires_grad_(False)
    plain.to(memory_format=layout)  # type: ignore[call-overload]  # torch's stub lacks it
    chain = Chain(list(plain) if isinstance(plain, nn.Sequential) else [plain])
    # Many values are equal, so that pools have to choose between them, and many zero, where rectifiers bend.
    values = torch.randint(-1, 2, (5, 4, 7, 9)).double().contiguous(memory_format=layout).requires_grad_(True)
    expected = plain(values)
    weights = torch.randn_like(expected)
    (reference,) = torch.autograd.grad((expected * weights).sum(), values)
    found = chain(values)
    (gradient,) = torch.autograd.grad((found * weights).sum(), values)
    assert reference.abs().max() > 0
    assert torch.equal(found, expected)
    torch.testing.assert_close(gradient, reference, atol=1e-12, rtol=0)
    by_hand, made = chain.run(values.detach())
    assert torch.equal(by_hand, expected)
    assert torch.equal(chain.pull(weights, made), gradient)
    with torch.no_grad():
        assert torch.equal(chain(values), expected)
    assert not list(chain.parameters())


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 2, 2, padding="same"),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"),
        nn.Sigmoid(),
        nn.BatchNorm2d(2).eval(),
    ],
)
def test_other_layers_are_no_part_of_a_chain(layer: nn.Module) -> None:
    plain = nn.Sequential(nn.Conv2d(1, 2, 1), layer, nn.ReLU()).requires_grad_(False)
    chained = fx.symbolic_trace(plain)
    with_chains(chained)
    assert [len(module.links) for module in chained.modules() if isinstance(module, Chain)] == [1]
    images = torch.randn(2, 1, 5, 5)
    assert torch.equal(chained(images), plain(images))


@pytest.mark.parametrize("architecture", ["mnist-cnn", "resnet18", "resnet-4x5"])
def test_what_a_gradient_kept_is_let_go(architecture: str) -> None:
    """At once, and not by the collector of cycles, which knows nothing of the size of what hangs on them."""
    network = create(architecture, num_classes=3, image_shape=(1, 16, 16), width=4).eval()
    prepared = Prepared(network)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            leaf = torch.rand(2, 1, 16, 16, requires_grad=True)
            torch.autograd.grad(prepared(leaf).sum(), leaf)
            prepared(leaf)
        left = [found for found in gc.get_objects() if type(found).__name__ == "_PulledBackward"]
        assert not left
    finally:
        gc.enable()


def test_second_derivatives_are_refused() -> None:
    chain = Chain([nn.Conv2d(2, 2, 1).requires_grad_(False), nn.Flatten()])
    values = torch.rand(1, 2, 3, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(chain(values).square().sum(), values, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


class Branching(nn.Module):
    """Layers whose values are used twice, or that follow a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(1, 2, 1), nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 1)
        self.bend, self.pool = nn.ReLU(), nn.MaxPool2d(2)

    def forward(self, values: Tensor) -> Tensor:
        begun = self.bend(self.first(values))
        other = self.bend(self.second(begun))
        return self.pool(self.third(begun + other)) * self.pool(other).mean()


def test_what_is_used_twice_ends_a_chain() -> None:
    torch.manual_seed(0)
    branching = Branching().double().requires_grad_(False)
    values = torch.randn(3, 1, 6, 6, dtype=torch.float64, requires_grad=True)
    expected = branching(values)
    (reference,) = torch.autograd.grad(expected.square().sum(), values)
    chained = fx.symbolic_trace(branching)
    with_chains(chained)
    found = chained(values)
    (gradient,) = torch.autograd.grad(found.square().sum(), values)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(gradient, reference, atol=1e-12, rtol=0)
    lengths = [len(module.links) for module in chained.modules() if isinstance(module, Chain)]
    assert lengths == [2]
    assert as_chain(chained) is None
    assert chained.state_dict().keys() == branching.state_dict().keys()


@pytest.mark.parametrize(
    ("architecture", "channels", "precision", "whole", "used"),
    [
        ("mnist-cnn", 1, "float32", True, True),
        ("small-cnn", 3, "float32", True, True),
        ("vgg16", 3, "float32", True, True),
        ("two-layer-relu", 3, "float32", True, True),
        ("resnet18", 1, "float32", False, True),
        ("resnet18", 3, "float32", False, False),
        ("small-cnn", 1, "bfloat16", False, False),
    ],
)
def test_networks_without_a_branch_are_one_chain(
    architecture: str, channels: int, precision: str, whole: bool, used: bool
) -> None:
    network = create(architecture, num_classes=3, image_shape=(channels, 32, 32), width=2)
    before = torch.get_rng_state()
    prepared = Prepared(network, precision=precision)  # type: ignore[arg-type]
    assert torch.equal(torch.get_rng_state(), before)
    assert (prepared.chain is not None) == whole
    assert any(isinstance(module, Chain) for module in prepared.modules()) == used


@pytest.mark.parametrize("of", ["logits", "representation"])
@pytest.mark.parametrize("architecture", ["small-cnn", "mnist-cnn", "linear", "two-layer-relu", "resnet18"])
def test_gradients_by_hand_are_autograds(architecture: str, of: str) -> None:
    torch.manual_seed(0)
    network = create(
        architecture, num_classes=5, image_shape=(1, 9, 7), width=None if architecture == "linear" else 4
    ).eval()
    network.normalise(torch.tensor([0.3]), torch.tensor([0.2]))
    prepared = Prepared(network)
    images = torch.rand(6, 1, 9, 7)
    seen: list[Tensor] = []

    def slope(outputs: Tensor) -> Tensor:
        seen.append(outputs)
        return 2 * outputs

    found = Objective(prepared, slope, of).gradient(images)  # type: ignore[arg-type]
    leaf = images.clone().requires_grad_(True)
    outputs = network(leaf) if of == "logits" else network.representation(leaf)
    torch.testing.assert_close(seen[0], outputs.detach(), atol=1e-4, rtol=1e-4)
    (expected,) = torch.autograd.grad(outputs.square().sum(), leaf)
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
    assert not found.requires_grad


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


@pytest.mark.parametrize("architecture", ["small-cnn", "mnist-cnn", "resnet18"])
def test_an_image_with_the_representation_that_is_asked_for_stays(architecture: str) -> None:
    """What is found without a gradient is to the bit what the gradient starts from; else rounding would be a step."""
    torch.manual_seed(0)
    network = create(architecture, num_classes=5, image_shape=(1, 8, 8), width=4).eval()
    network.normalise(torch.tensor([0.3]), torch.tensor([0.2]))
    images = torch.rand(6, 1, 8, 8)
    assert torch.equal(invert(Prepared(network), images, images, step_size=0.1, steps=2), images)


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
