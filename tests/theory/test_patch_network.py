"""Closed-form gradients against autograd, and the attacks against their definitions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from robustfeatures.theory.patch_data import Patches, draw
from robustfeatures.theory.patch_network import (
    PatchBall,
    SmoothedReLU,
    activation,
    class_gradient,
    clip,
    is_certified,
    is_right,
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

    attacked = pgd(weights, data.points, data.labels, SMALL, start=data.points, steps=10, relative_step_size=0.25)
    assert (attacked - data.points).norm(dim=2).max() <= SMALL.radius * (1 + 1e-9)
    assert (margin(attacked) < margin(data.points)).all()


def test_pgd_finds_planted_features_from_random_starts_alone() -> None:
    """Without noise no filter of another class has a slope at the point, so PGD from there cannot raise its output."""
    quiet = replace(SMALL, noise=0.0)
    data = draw(quiet, 20, torch.Generator().manual_seed(0), torch.float64)
    filters = torch.eye(SMALL.classes, SMALL.dimension, dtype=torch.float64)[:, None].expand(-1, SMALL.width, -1)
    change = PatchBall().random_start(data.points, quiet.radius, torch.Generator().manual_seed(1))
    rows = torch.arange(20)
    for start, moves in ((data.points, False), (data.points + change, True)):
        attacked = pgd(filters, data.points, data.labels, quiet, start=start, steps=20, relative_step_size=0.25)
        others = logits(filters, attacked, RELU)
        others[rows, data.labels] = 0
        assert bool((others > 0).any()) == moves
        assert bool(is_right(filters, attacked, data.labels, RELU).all()) != moves


def test_random_starts_are_uniform_in_the_ball_of_each_patch() -> None:
    points = torch.zeros(400, 5, 3, dtype=torch.float64)
    lengths = PatchBall().random_start(points, 0.7, torch.Generator().manual_seed(0)).norm(dim=2)
    assert lengths.max() <= 0.7
    # The volume inside a length is uniform; four standard errors of its mean.
    assert float((lengths / 0.7).pow(3).mean()) == pytest.approx(0.5, abs=4 / (12 * lengths.numel()) ** 0.5)


def test_what_is_certified_withstands_every_attack(data: Patches) -> None:
    generator = torch.Generator().manual_seed(2)
    counts = []
    for scale in (0.1, 0.5, 1.0):
        easy = replace(SMALL, radius=0.02)
        # Filters that point to both features of their class, and a little elsewhere.
        filters = draw_initial_weights(SMALL, generator, torch.float64) * 0.1
        for label in range(SMALL.classes):
            filters[label, :, [label, SMALL.classes + label]] += scale * (1 + label)
        certified = is_certified(filters, data.points, data.labels, easy)
        counts.append(int(certified.sum()))
        for number in range(10):
            start = data.points + PatchBall().random_start(data.points, easy.radius, generator)
            steps = 15 if number else 0
            attacked = pgd(filters, data.points, data.labels, easy, start=start, steps=steps, relative_step_size=0.3)
            assert is_right(filters, attacked, data.labels, RELU)[certified].all()
    assert max(counts) > 0
    nothing = is_certified(filters, data.points, data.labels, replace(SMALL, radius=5.0))
    assert not nothing.any()


def test_the_bound_has_its_closed_form_for_one_patch() -> None:
    """A patch e_1 and one filter e_i a class: s(1 - eps) > s(eps) if eps < 1/2."""
    one = replace(SMALL, classes=2, patches=1, width=1, dimension=4, threshold=100.0)
    filters = torch.eye(2, 4, dtype=torch.float64)[:, None]
    points = torch.tensor([[[1.0, 0.0, 0.0, 0.0]]], dtype=torch.float64)
    labels = torch.tensor([0])
    for radius, safe in ((0.49, True), (0.51, False)):
        assert bool(is_certified(filters, points, labels, replace(one, radius=radius))) == safe


def test_a_tie_is_an_error(data: Patches) -> None:
    silent = torch.zeros(SMALL.classes, SMALL.width, SMALL.dimension, dtype=torch.float64)
    assert not is_right(silent, data.points, data.labels, RELU).any()
