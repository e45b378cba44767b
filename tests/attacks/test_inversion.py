"""Inversion of a representation."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from robustfeatures.attacks import invert
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.models.network import Network
from tests.benchmarks.inversion import inverted, light, share_left
from tests.conftest import Digits


def test_the_distance_falls_in_the_mean(network: Network, digits: Digits) -> None:
    start, targets = digits.images[1000:1100], digits.images[1100:1200]

    def distance(steps: int) -> float:
        found = invert(network, start, targets, step_size=0.02, steps=steps)
        with torch.no_grad():
            gap = network.representation(found) - network.representation(targets)
        return gap.norm(dim=1).mean().item()

    distances = [distance(steps) for steps in (0, 1, 2, 4, 8, 16, 32, 64)]
    assert all(later < earlier for earlier, later in pairwise(distances))
    assert distances[-1] < 0.5 * distances[0]


def test_progress_receives_every_step_and_changes_nothing(network: Network, digits: Digits) -> None:
    start, targets = digits.images[1000:1010], digits.images[1100:1110]
    steps_done: list[int] = []
    found = invert(network, start, targets, step_size=0.02, steps=4, progress=steps_done.append)
    assert steps_done == [1, 2, 3, 4]
    assert torch.equal(found, invert(network, start, targets, step_size=0.02, steps=4))


def test_recovers_the_image_where_the_representation_is_invertible(digits: Digits) -> None:
    """With an orthogonal g the only image with the target's representation is the target."""
    torch.manual_seed(0)
    orthogonal = nn.utils.parametrizations.orthogonal(nn.Linear(64, 64, bias=False))
    network = Network(nn.Sequential(nn.Flatten(), orthogonal), nn.Linear(64, 10), 1).to(digits.images.device)
    start, targets = digits.images[:20], digits.images[20:40]
    found = invert(network, start, targets, step_size=0.02, steps=400)
    assert (start - targets).flatten(1).norm(dim=1).min() > 1
    # A step of fixed length cannot come nearer than about itself.
    assert (found - targets).flatten(1).norm(dim=1).max() <= 0.02 + 1e-4


def test_stays_in_the_pixel_range_and_ignores_the_batch(network: Network, digits: Digits) -> None:
    start, targets = digits.images[:12], digits.images[50:62]
    found = invert(network, start, targets, step_size=0.5, steps=6)
    assert found.min() >= 0
    assert found.max() <= 1
    alone = torch.cat(
        [invert(network, s[None], t[None], step_size=0.5, steps=6) for s, t in zip(start, targets, strict=True)]
    )
    torch.testing.assert_close(found, alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("frozen", [False, True])
def test_an_image_that_has_the_representation_does_not_move(network: Network, digits: Digits, frozen: bool) -> None:
    """A step has a fixed length, so it would turn a rounding error into a whole step."""
    images = digits.images[1000:1050]
    attacked = FrozenNetwork(network) if frozen else network
    assert torch.equal(invert(attacked, images, images, step_size=0.1, steps=3), images)


def test_the_share_of_the_distance_that_is_left(digits: Digits) -> None:
    """With an orthogonal g each step goes straight to the target, so that the share falls by a step's length."""
    torch.manual_seed(0)
    orthogonal = nn.utils.parametrizations.orthogonal(nn.Linear(64, 64, bias=False))
    network = Network(nn.Sequential(nn.Flatten(), orthogonal), nn.Linear(64, 10), 1)
    start, targets = digits.images[:20], digits.images[20:40]
    distance = (start - targets).flatten(1).norm(dim=1)
    assert distance.min() > 0.5
    paths = inverted(network, start, targets, step_size=0.02, steps=(1, 5, 20))
    for steps, images in zip((1, 5, 20), paths, strict=True):
        share = share_left(network, start, images, targets)
        torch.testing.assert_close(share, 1 - 0.02 * steps / distance, atol=1e-3, rtol=0)


def test_shares_are_those_of_whole_inversions(network: Network, digits: Digits) -> None:
    start, targets = digits.images[1000:1010], digits.images[1100:1110]
    (_, images) = inverted(network, start, targets, step_size=0.05, steps=(3, 10))
    found = share_left(network, start, images, targets)
    whole = invert(network, start, targets, step_size=0.05, steps=10)
    with torch.no_grad():
        goal = network.representation(targets)
        expected = [(network.representation(images) - goal).norm(dim=1) for images in (whole, start)]
    torch.testing.assert_close(found, expected[0] / expected[1], atol=1e-3, rtol=0)


def test_how_much_the_light_varies() -> None:
    """Half of the pixels are 0.1 above the mean, half below. One channel has means of 0.2 and 0.6, the other of 0.3."""
    stripes = torch.tensor([-0.1, 0.1]).repeat(4, 8)
    means = torch.tensor([[0.2, 0.3], [0.6, 0.3]])
    found = light(means[:, :, None, None] + stripes)
    # 64 pixels and two images; torch divides by one less.
    assert found["sd within images"] == pytest.approx(0.1 * (64 / 63) ** 0.5, abs=1e-6)
    assert found["sd of their means"] == pytest.approx((0.4 / 2**0.5 + 0) / 2, abs=1e-6)
