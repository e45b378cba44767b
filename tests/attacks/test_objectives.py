"""Objectives are known by their slopes; here they are written as sums, whose slopes autograd finds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from robustfeatures.attacks.objectives import leave_class, reach_class, reach_representation
from robustfeatures.engine.prepared import Prepared
from robustfeatures.models import create
from robustfeatures.models.network import Network

LABELS = torch.tensor([0, 3, 1, 1, 2])
GOAL = torch.linspace(0, 1, 5 * 8).view(5, 8)


def network() -> Network:
    torch.manual_seed(0)
    made = create("small-cnn", num_classes=4, image_shape=(3, 8, 8), width=4).eval().requires_grad_(False)
    made.normalise(torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.1]))
    return made


SUMS: dict[str, tuple[Callable[..., object], Callable[[Network, Tensor], Tensor]]] = {
    "leave": (
        lambda model: leave_class(model, LABELS),
        lambda model, images: functional.cross_entropy(model(images), LABELS, reduction="sum"),
    ),
    "reach": (
        lambda model: reach_class(model, LABELS),
        lambda model, images: -functional.cross_entropy(model(images), LABELS, reduction="sum"),
    ),
    "representation": (
        lambda model: reach_representation(model, GOAL.to(next(model.parameters()).dtype)),
        lambda model, images: -(model.representation(images) - GOAL.to(images.dtype)).norm(dim=1).sum(),
    ),
}


@pytest.mark.parametrize("name", SUMS)
def test_gradients_are_those_of_the_sums(name: str) -> None:
    objective, summed = SUMS[name]
    plain = network().double()
    images = torch.rand(5, 3, 8, 8, dtype=torch.float64)
    leaf = images.clone().requires_grad_(True)
    (expected,) = torch.autograd.grad(summed(plain, leaf), leaf)
    assert expected.abs().max() > 1e-3
    found = objective(plain).gradient(images)  # type: ignore[attr-defined]
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    by_hand = objective(Prepared(network())).gradient(images.float())  # type: ignore[attr-defined]
    torch.testing.assert_close(by_hand.double(), expected, atol=1e-5, rtol=1e-4)


def test_an_image_that_is_there_has_no_direction() -> None:
    model = network()
    images = torch.rand(5, 3, 8, 8)
    there = reach_representation(model, model.representation(images))
    assert torch.equal(there.gradient(images), torch.zeros_like(images))


def test_an_image_the_network_is_sure_of_keeps_its_direction() -> None:
    """Where the probability of the label rounds to 1 in float32 its slope is that of the others, not all zero."""
    logits = torch.tensor([[40.0, 0.0, 0.0, 0.0]])
    slope = leave_class(network(), torch.tensor([0])).slope(logits)
    leaf = logits.clone().requires_grad_(True)
    (expected,) = torch.autograd.grad(functional.cross_entropy(leaf, torch.tensor([0])), leaf)
    torch.testing.assert_close(slope, expected, atol=0, rtol=1e-6)
    assert (slope[0, 1:] > 0).all()
