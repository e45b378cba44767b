"""Closed-form gradients against autograd, and the attacks against their definitions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from robustfeatures.theory.patch_data import Patches, draw
from robustfeatures.theory.patch_network import (
    SmoothedReLU,
    accuracy,
    activation,
    class_gradient,
    clip,
    logits,
    loss_and_gradient,
    one_step,
    pgd,
)
from robustfeatures.theory.patch_training import draw_initial_weights
from tests.theory.settings import SMALL

RELU = activation(SMALL)


def plain_logits(weights: Tensor, points: Tensor) -> Tensor:
    """F written out from Section 2.3, one class and one filter at a time."""
    q, rho = SMALL.exponent, SMALL.threshold
    outputs = []
    for filters in weights:
        total = torch.zeros(len(points), dtype=points.dtype)
        for one in filters:
            z = points @ one
            middle = z.clamp(min=0) ** q / (q * rho ** (q - 1))
            total = total + torch.where(z > rho, z - (1 - 1 / q) * rho, middle).sum(dim=1)
        outputs.append(total)
    return torch.stack(outputs, dim=1)


@pytest.fixture
def data() -> Patches:
    return draw(SMALL, 12, torch.Generator().manual_seed(0), torch.float64)


@pytest.fixture
def weights() -> Tensor:
    """Large enough that products fall on every piece of the activation."""
    return 12 * draw_initial_weights(SMALL, torch.Generator().manual_seed(1), torch.float64)


@pytest.mark.parametrize(("exponent", "threshold"), [(2, 1.0), (3, 0.5), (4, 2.0)])
def test_smoothed_relu(exponent: int, threshold: float) -> None:
    relu = SmoothedReLU(exponent, threshold)
    z = torch.linspace(-1, 5, 601, dtype=torch.float64).requires_grad_()
    middle = z.clamp(min=0) ** exponent / (exponent * threshold ** (exponent - 1))
    expected = torch.where(z > threshold, z - (1 - 1 / exponent) * threshold, middle)
    torch.testing.assert_close(relu(z), expected)
    (slope,) = torch.autograd.grad(expected.sum(), z)
    torch.testing.assert_close(relu.slope(z.detach()), slope)


def test_logits_and_gradients(data: Patches, weights: Tensor) -> None:
    preactivations = data.points @ weights.flatten(0, 1).T
    assert (preactivations < 0).any()
    assert ((preactivations > 0) & (preactivations < SMALL.threshold)).any()
    assert (preactivations > SMALL.threshold).any()
    torch.testing.assert_close(logits(weights, data.points, RELU), plain_logits(weights, data.points))
    at = weights.clone().requires_grad_()
    expected = cross_entropy(plain_logits(at, data.points), data.labels)
    loss, gradient = loss_and_gradient(weights, data.points, data.labels, RELU)
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, at)[0], rtol=1e-9, atol=1e-12)
    points = data.points.clone().requires_grad_()
    own = plain_logits(weights, points).gather(1, data.labels[:, None]).sum()
    torch.testing.assert_close(
        class_gradient(weights, data.points, data.labels, RELU), torch.autograd.grad(own, points)[0]
    )


def test_clipping_is_the_projection_of_each_patch() -> None:
    change = (
        torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([0.1, 1.0, 5.0, 0.0])[:, None]
    )
    for norm_before, patch in zip(change.norm(dim=2).flatten(), clip(change, 0.7).flatten(0, 1), strict=True):
        assert float(patch.norm()) == pytest.approx(min(float(norm_before), 0.7), rel=1e-5)
    torch.testing.assert_close(clip(change, 100.0), change)


def test_attacks_stay_in_the_ball_and_lower_the_margin(data: Patches, weights: Tensor) -> None:
    own = data.labels[:, None]
    moved = one_step(weights, data.points, data.labels, SMALL)
    assert (moved - data.points).norm(dim=2).max() <= SMALL.radius * (1 + 1e-9)
    gradient = class_gradient(weights, data.points, data.labels, RELU)
    short = gradient.norm(dim=2) * SMALL.ascent_rate < SMALL.radius
    assert short.any()
    torch.testing.assert_close((moved - data.points)[short], -SMALL.ascent_rate * gradient[short])
    # A short step lowers F_y by the rate times the squared gradient.
    gentle = one_step(weights, data.points, data.labels, replace(SMALL, ascent_rate=1e-6))
    fall = (logits(weights, data.points, RELU) - logits(weights, gentle, RELU)).gather(1, own).squeeze(1)
    torch.testing.assert_close(fall, 1e-6 * gradient.square().sum(dim=(1, 2)), rtol=1e-3, atol=1e-12)

    def margin(points: Tensor) -> Tensor:
        outputs = logits(weights, points, RELU)
        return outputs.gather(1, own).squeeze(1) - outputs.scatter(1, own, -torch.inf).amax(dim=1)

    attacked = pgd(weights, data.points, data.labels, SMALL, steps=10, relative_step_size=0.25)
    assert (attacked - data.points).norm(dim=2).max() <= SMALL.radius * (1 + 1e-9)
    assert (margin(attacked) < margin(data.points)).all()


def test_a_tie_is_an_error(data: Patches) -> None:
    silent = torch.zeros(SMALL.classes, SMALL.width, SMALL.dimension, dtype=torch.float64)
    assert accuracy(silent, data.points, data.labels, RELU) == 0.0
