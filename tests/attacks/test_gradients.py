"""Gradients of the loss, and the pictures made of them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from robustfeatures.attacks.gradients import loss_gradients, render_gradients
from robustfeatures.models.network import Network
from tests.conftest import Digits


def test_each_gradient_has_the_direction_of_the_cross_entropys_at_its_image_alone(
    digits: Digits, network: Network
) -> None:
    images, labels = digits.images[:4], digits.labels[:4]
    found = loss_gradients(network, images, labels)
    doubled = copy.deepcopy(network).double()
    for number in range(4):
        image = images[number : number + 1].double().requires_grad_(True)
        functional.cross_entropy(doubled(image), labels[number : number + 1]).backward()
        assert image.grad is not None
        lengths = found[number].norm(), image.grad.norm()
        torch.testing.assert_close(
            found[number] / lengths[0], (image.grad[0] / lengths[1]).float(), rtol=1e-4, atol=1e-6
        )
    assert all(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.parametrize("scale", [1.0, 50.0, 1000.0])
def test_the_gradient_of_a_sure_linear_network_is_the_difference_of_its_weights(scale: float) -> None:
    """Two classes: the cross-entropy of the first falls along w_0 - w_1 at any margin, here up to 1000."""
    head = nn.Linear(4, 2, bias=False)
    with torch.no_grad():
        head.weight.copy_(scale * torch.tensor([[1.0, 0.0, 2.0, 0.0], [0.0, 3.0, 0.0, 1.0]]))
    images = torch.tensor([[[[1.0, 0.5], [0.0, 0.0]]], [[[0.5, 0.0], [0.5, 0.5]]]])
    found = loss_gradients(nn.Sequential(nn.Flatten(), head), images, torch.tensor([0, 0]))
    towards = torch.tensor([-1.0, 3.0, -2.0, 1.0])
    for gradient in found.flatten(1):
        torch.testing.assert_close(gradient / gradient.norm(), towards / towards.norm())


def test_pictures_of_gradients() -> None:
    """Of 400 values of +-1 and one of 100 the deviation is 5.09; three of them are white, and zero is grey."""
    gradient = torch.ones(1, 1, 20, 20)
    gradient[0, 0, ::2] = -1.0
    gradient[0, 0, 0, 0] = 100.0
    gradient[0, 0, 1, 1] = 0.0
    deviation = gradient.std(correction=0)
    picture = render_gradients(gradient, 3.0)[0, 0]
    assert picture[0, 0] == 1.0
    assert picture[1, 1] == 0.5
    torch.testing.assert_close(picture[1, 0], 0.5 + 1 / (6 * deviation))
    torch.testing.assert_close(picture[2, 0], 0.5 - 1 / (6 * deviation))
    # The scale is each image's own, whatever it is.
    both = torch.cat([gradient, 1e-6 * gradient])
    torch.testing.assert_close(render_gradients(both, 3.0)[0], render_gradients(both, 3.0)[1])
    assert (render_gradients(torch.zeros(1, 3, 2, 2), 3.0) == 0.5).all()
