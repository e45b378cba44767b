"""Gradients of objectives against closed forms of output gradients, carried to the pixels by autograd in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from robustfeatures.attacks import l2
from robustfeatures.attacks.gradient_ascent import Objective, gradient, gradient_ascent
from robustfeatures.attacks.margins import compute_log_odds
from robustfeatures.attacks.objectives import log_odds_against, log_odds_of, minus_representation_distance
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.models import create
from robustfeatures.models.network import Network

LABELS = torch.tensor([0, 3, 1, 1, 2])
GOAL = torch.linspace(0, 1, 5 * 8).view(5, 8)


def network() -> Network:
    torch.manual_seed(0)
    made = create("small-cnn", num_classes=4, image_shape=(3, 8, 8), width=4).eval().requires_grad_(False)
    made.set_normalisation(torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.1]))
    return made


def residual(logits: Tensor) -> Tensor:
    """(softmax(z) - onehot(y)) / (1 - p_y): the gradient of the cross-entropy, over its derivative by the log odds."""
    own = functional.one_hot(LABELS, 4)
    probabilities = logits.softmax(dim=1)
    return (probabilities - own) / (1 - (own * probabilities).sum(dim=1, keepdim=True))


def unit_to_goal(representation: Tensor) -> Tensor:
    """The unit vectors to the goal."""
    way = GOAL.to(representation.dtype) - representation
    return way / way.norm(dim=1, keepdim=True)


OutputGradient = Callable[[Tensor], Tensor]
OBJECTIVES: dict[str, tuple[Callable[[Network], Objective], str, OutputGradient]] = {
    "untargeted": (lambda model: log_odds_against(model, LABELS), "logits", residual),
    "targeted": (lambda model: log_odds_of(model, LABELS), "logits", lambda logits: -residual(logits)),
    "representation": (
        lambda model: minus_representation_distance(model, GOAL.to(next(model.parameters()).dtype)),
        "representation",
        unit_to_goal,
    ),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_follow_from_the_output_gradients(name: str) -> None:
    objective, of, output_gradient = OBJECTIVES[name]
    plain = network().double()
    images = torch.rand(5, 3, 8, 8, dtype=torch.float64)
    leaf = images.clone().requires_grad_(True)
    outputs = plain(leaf) if of == "logits" else plain.representation(leaf)
    (expected,) = torch.autograd.grad(outputs, leaf, output_gradient(outputs.detach()))
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(gradient(objective(plain), images), expected, atol=1e-12, rtol=0)
    found = gradient(objective(FrozenNetwork(network())), images.float())  # type: ignore[arg-type]
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-4)


def test_the_gradient_is_zero_at_the_goal() -> None:
    model = network()
    images = torch.rand(5, 3, 8, 8)
    there = minus_representation_distance(model, model.representation(images))
    assert torch.equal(gradient(there, images), torch.zeros_like(images))


@pytest.mark.parametrize("margin", [0.0, 20.0, 40.0, 200.0])
def test_a_confident_network_still_has_a_gradient(margin: float) -> None:
    """Also where the probability of the label rounds to 1: the logit of the label falls, the others rise."""
    logits = torch.tensor([[margin, 0.0, 0.0, -1.0]])
    found = gradient(log_odds_against(torch.nn.Identity(), torch.tensor([0])), logits)
    others = logits[0, 1:].double().softmax(dim=0).float()
    torch.testing.assert_close(found[0], torch.cat([-torch.ones(1), others]))


def test_log_odds_rise_with_the_cross_entropy() -> None:
    """The cross-entropy is log(1 + odds)."""
    logits = 3 * torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(50) % 4
    expected = functional.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(functional.softplus(compute_log_odds(logits, labels)), expected)


def test_an_objective_of_ones_own_is_a_function() -> None:
    """The sum of the first logits of a linear network: its gradient is the first row of weights."""
    linear = create("linear", num_classes=4, image_shape=(1, 4, 4))
    images = torch.full((2, 1, 4, 4), 0.5)
    found = gradient_ascent(lambda shown: linear(shown)[:, 0].sum(), images, norm=l2, step_size=0.1, steps=2)
    weights = linear.head.weight[0].detach().view(1, 1, 4, 4)
    torch.testing.assert_close(found, images + 0.2 * weights / weights.norm())
