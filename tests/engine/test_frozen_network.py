"""A frozen network gives the same numbers as the original network."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from robustfeatures.attacks import invert, pgd
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.models import create
from robustfeatures.models.network import Network

SMALL = {
    "small-cnn": 8,
    "resnet18": 8,
    "resnet50": 8,
    "resnet9": 8,
    "vgg16": 8,
    "densenet121": 8,
    "inception-v3": 12,
    "wrn-34-10": 8,
    "resnet-4x5": 8,
}


def lived_in(architecture: str, width: int, device: torch.device) -> Network:
    """A network whose batch norms have seen data, so that folding them changes the weights."""
    torch.manual_seed(0)
    network = create(architecture, num_classes=7, image_shape=(3, 32, 32), width=width).to(device)
    network.set_normalisation(torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.25, 0.3]))
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.1)
    network.train()
    for _ in range(3):
        network(torch.rand(16, 3, 32, 32).to(device))
    return network.eval()


@pytest.mark.parametrize("architecture", SMALL)
def test_logits_representation_and_gradient_are_the_networks(device: torch.device, architecture: str) -> None:
    network = lived_in(architecture, SMALL[architecture], device)
    frozen_network = FrozenNetwork(network)
    images = torch.rand(6, 3, 32, 32).to(device)
    with torch.no_grad():
        torch.testing.assert_close(frozen_network(images), network(images), atol=2e-4, rtol=1e-3)
        expected = network.representation(images)
        torch.testing.assert_close(frozen_network.representation(images), expected, atol=2e-4, rtol=1e-3)

    def gradient(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
        leaf = images.clone().requires_grad_(True)
        (found,) = torch.autograd.grad(model(leaf)[:, 0].sum(), leaf)
        return found.flatten(1).cpu().double()

    exact = gradient(copy.deepcopy(network).cpu().double(), images.cpu().double())
    similarities = {
        type(model).__name__: float(nn.functional.cosine_similarity(gradient(model, images), exact).min())
        for model in (network, frozen_network)
    }
    assert min(similarities.values()) > 0.999, similarities
    assert any(isinstance(module, nn.BatchNorm2d) for module in network.modules())


@pytest.mark.parametrize(("architecture", "left"), [("resnet18", 0), ("resnet9", 0), ("vgg16", 0), ("small-cnn", 0)])
def test_no_batch_norm_is_left_after_a_convolution(architecture: str, left: int) -> None:
    frozen_network = FrozenNetwork(lived_in(architecture, 8, torch.device("cpu")))
    assert sum(isinstance(module, nn.BatchNorm2d) for module in frozen_network.modules()) == left


def test_refresh_follows_a_training_and_touches_nothing_else(device: torch.device) -> None:
    network = lived_in("resnet18", 8, device)
    frozen_network = FrozenNetwork(network)
    images = torch.rand(4, 3, 32, 32).to(device)
    with torch.no_grad():
        before = frozen_network(images)
        for parameter in network.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
        network.train()
        network(torch.rand(16, 3, 32, 32).to(device))
        network.eval()
        assert torch.equal(frozen_network(images), before)
        frozen_network.refresh()
        assert (frozen_network(images) - before).abs().max() > 0.01
        torch.testing.assert_close(frozen_network(images), network(images), atol=2e-4, rtol=1e-3)
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert not any(parameter.requires_grad for parameter in frozen_network.parameters())


def test_refresh_follows_what_took_the_place_of_something_else(device: torch.device) -> None:
    """A change of layout replaces the tensors of mean and variance; loading may replace the weights."""
    network = lived_in("small-cnn", 8, device)
    frozen_network = FrozenNetwork(network)
    network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # torch's stub lacks it
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.set_normalisation(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.6, 0.7]))
    trained = lived_in("small-cnn", 8, device).state_dict()
    other = {name: value.clone() for name, value in trained.items() if "std" not in name}
    other["head.weight"] *= 2
    network.load_state_dict(other, strict=False, assign=True)
    frozen_network.refresh()
    images = torch.rand(4, 3, 32, 32).to(device)
    with torch.no_grad():
        torch.testing.assert_close(frozen_network(images), network(images), atol=2e-4, rtol=1e-3)


def test_attacks_and_inversions_agree_with_those_on_the_network(device: torch.device) -> None:
    network = lived_in("resnet18", 8, device)
    frozen_network = FrozenNetwork(network)
    images, labels = torch.rand(8, 3, 32, 32).to(device), torch.arange(8, device=device) % 7
    for model in (network, frozen_network):
        adversarial = pgd(model, images, labels, norm="l2", eps=0.5, step_size=0.1, steps=5, targeted=True)
        inverted = invert(model, images.flip(0), images, step_size=0.1, steps=5)
        if model is network:
            expected = adversarial, inverted
    # Rounding flips some ReLUs, so single paths differ, but their lengths agree.
    for found, reference in zip((adversarial, inverted), expected, strict=True):
        assert (found - reference).flatten(1).norm(dim=1).max() < 0.02
        assert (reference - images).flatten(1).norm(dim=1).min() > 0.3


def test_bfloat16_is_near_and_returns_float32(device: torch.device) -> None:
    network = lived_in("small-cnn", 8, device)
    images = torch.rand(32, 3, 32, 32).to(device)
    half, full = FrozenNetwork(network, precision="bfloat16"), FrozenNetwork(network)
    with torch.no_grad():
        assert half(images).dtype == half.representation(images).dtype == torch.float32
        assert not torch.equal(half(images), full(images))
        # bfloat16 keeps eight bits: each of the three layers rounds by up to 1/256.
        torch.testing.assert_close(half(images), full(images), atol=0.05, rtol=0.02)
    labels = torch.zeros(32, dtype=torch.int64, device=device)
    adversarial = pgd(half, images, labels, norm="l2", eps=0.5, step_size=0.1, steps=3)
    assert adversarial.dtype == torch.float32


@pytest.mark.parametrize("of", ["logits", "representation"])
@pytest.mark.parametrize("architecture", ["small-cnn", "mnist-cnn", "linear", "two-layer-relu", "resnet18"])
def test_oblong_grey_images_have_the_networks_numbers_and_gradients(
    device: torch.device, architecture: str, of: str
) -> None:
    torch.manual_seed(0)
    width = None if architecture == "linear" else 4
    network = create(architecture, num_classes=5, image_shape=(1, 9, 7), width=width).to(device)
    network.set_normalisation(torch.tensor([0.3]), torch.tensor([0.2]))
    before = torch.get_rng_state()
    frozen_network = FrozenNetwork(network.eval())
    assert torch.equal(torch.get_rng_state(), before)
    network.train()
    for _ in range(3):
        network(torch.rand(16, 1, 9, 7).to(device))
    network.eval()
    frozen_network.refresh()
    images = torch.rand(6, 1, 9, 7).to(device)
    outputs, gradients = [], []
    for model in (frozen_network, network):
        leaf = images.clone().requires_grad_(True)
        outputs.append(model(leaf) if of == "logits" else model.representation(leaf))
        gradients += torch.autograd.grad(outputs[-1].square().sum(), leaf)
    torch.testing.assert_close(*outputs, atol=1e-4, rtol=1e-4)
    assert gradients[1].abs().max() > 1e-3
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("architecture", ["small-cnn", "mnist-cnn", "resnet18"])
def test_an_image_with_the_representation_that_is_asked_for_stays(device: torch.device, architecture: str) -> None:
    """A forward pass has the same bits with and without a gradient; else rounding would look like a step."""
    torch.manual_seed(0)
    network = create(architecture, num_classes=5, image_shape=(1, 8, 8), width=4).eval().to(device)
    network.set_normalisation(torch.tensor([0.3]), torch.tensor([0.2]))
    images = torch.rand(6, 1, 8, 8).to(device)
    assert torch.equal(invert(FrozenNetwork(network), images, images, step_size=0.1, steps=2), images)


class Shared(nn.Module):
    """One convolution before two batch norms, and one batch norm after two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(3))
        self.one, self.other = nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        begun = self.one(self.first(images)) + self.other(self.first(images))
        return (self.one(self.second(begun)) + self.third(begun)).flatten(1)


def test_layers_that_are_called_twice_are_left_alone() -> None:
    torch.manual_seed(0)
    network = Network(Shared(), nn.Linear(48, 2), 3)
    for _ in range(3):
        network(torch.rand(16, 3, 4, 4))
    network.eval()
    frozen_network = FrozenNetwork(network)
    images = torch.rand(4, 3, 4, 4)
    with torch.no_grad():
        torch.testing.assert_close(frozen_network(images), network(images), atol=1e-5, rtol=1e-4)
