"""A network made ready for attacks gives the same numbers as the network it was made from."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from robustfeatures.attacks import invert, pgd
from robustfeatures.engine.prepared import Prepared
from robustfeatures.models import create
from robustfeatures.models.network import Network

SMALL = {
    "small-cnn": 8,
    "resnet18": 8,
    "resnet50": 8,
    "vgg16": 8,
    "densenet121": 8,
    "inception-v3": 12,
    "wrn-34-10": 8,
    "resnet-4x5": 8,
}


def lived_in(architecture: str, width: int) -> Network:
    """A network whose batch norms have seen data, so that folding them changes the weights."""
    torch.manual_seed(0)
    network = create(architecture, num_classes=7, image_shape=(3, 32, 32), width=width)
    network.normalise(torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.25, 0.3]))
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.1)
    network.train()
    for _ in range(3):
        network(torch.rand(16, 3, 32, 32))
    return network.eval()


@pytest.mark.parametrize("architecture", SMALL)
def test_logits_representation_and_gradient_are_the_networks(architecture: str) -> None:
    network = lived_in(architecture, SMALL[architecture])
    prepared = Prepared(network)
    images = torch.rand(6, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(prepared(images), network(images), atol=2e-4, rtol=1e-3)
        expected = network.representation(images)
        torch.testing.assert_close(prepared.representation(images), expected, atol=2e-4, rtol=1e-3)

    def gradient(model: nn.Module) -> torch.Tensor:
        leaf = images.clone().requires_grad_(True)
        (found,) = torch.autograd.grad(model(leaf)[:, 0].sum(), leaf)
        return found.flatten(1)

    found, expected = gradient(prepared), gradient(network)
    assert nn.functional.cosine_similarity(found, expected).min() > 0.999
    assert any(isinstance(module, nn.BatchNorm2d) for module in network.modules())


@pytest.mark.parametrize(("architecture", "left"), [("resnet18", 0), ("vgg16", 0), ("small-cnn", 0)])
def test_no_batch_norm_is_left_after_a_convolution(architecture: str, left: int) -> None:
    prepared = Prepared(lived_in(architecture, 8))
    assert sum(isinstance(module, nn.BatchNorm2d) for module in prepared.modules()) == left


def test_refresh_follows_a_training_and_touches_nothing_else() -> None:
    network = lived_in("resnet18", 8)
    prepared = Prepared(network)
    images = torch.rand(4, 3, 32, 32)
    with torch.no_grad():
        before = prepared(images)
        for parameter in network.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
        network.train()
        network(torch.rand(16, 3, 32, 32))
        network.eval()
        assert torch.equal(prepared(images), before)
        prepared.refresh()
        assert (prepared(images) - before).abs().max() > 0.01
        torch.testing.assert_close(prepared(images), network(images), atol=2e-4, rtol=1e-3)
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert not any(parameter.requires_grad for parameter in prepared.parameters())


def test_refresh_follows_what_took_the_place_of_something_else() -> None:
    """To change a network's layout replaces its mean and standard deviation; weights may be replaced on loading."""
    network = lived_in("small-cnn", 8)
    prepared = Prepared(network)
    network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # torch's stub lacks it
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.normalise(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.6, 0.7]))
    other = {name: value.clone() for name, value in lived_in("small-cnn", 8).state_dict().items() if "std" not in name}
    other["head.weight"] *= 2
    network.load_state_dict(other, strict=False, assign=True)
    prepared.refresh()
    images = torch.rand(4, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(prepared(images), network(images), atol=2e-4, rtol=1e-3)


def test_attacks_and_inversions_agree_with_those_on_the_network() -> None:
    network = lived_in("resnet18", 8)
    prepared = Prepared(network)
    images, labels = torch.rand(8, 3, 32, 32), torch.arange(8) % 7
    for model in (network, prepared):
        adversarial = pgd(model, images, labels, norm="l2", eps=0.5, step_size=0.1, steps=5, targeted=True)
        inverted = invert(model, images.flip(0), images, step_size=0.1, steps=5)
        if model is network:
            expected = adversarial, inverted
    # The paths part where a ReLU flips, a rounding error away; in length they stay together.
    for found, reference in zip((adversarial, inverted), expected, strict=True):
        assert (found - reference).flatten(1).norm(dim=1).max() < 0.02
        assert (reference - images).flatten(1).norm(dim=1).min() > 0.3


def test_bfloat16_is_near_and_returns_float32() -> None:
    network = lived_in("small-cnn", 8)
    images = torch.rand(32, 3, 32, 32)
    half, full = Prepared(network, precision="bfloat16"), Prepared(network)
    with torch.no_grad():
        assert half(images).dtype == half.representation(images).dtype == torch.float32
        assert not torch.equal(half(images), full(images))
        # bfloat16 keeps eight bits: each of the three layers rounds by up to 1/256.
        torch.testing.assert_close(half(images), full(images), atol=0.05, rtol=0.02)
    adversarial = pgd(half, images, torch.zeros(32, dtype=torch.int64), norm="l2", eps=0.5, step_size=0.1, steps=3)
    assert adversarial.dtype == torch.float32
