"""PGD on a representation, beside closed forms where the representation is the image."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robustfeatures.attacks.representation_pgd import representation_pgd
from robustfeatures.models.network import Network
from tests.conftest import Digits

STEP = 0.002


def attack(images: Tensor, targets: Tensor, norm: str, eps: float) -> Tensor:
    """Attack with g the identity: the optimum is the point of the ball nearest to the target."""
    network = Network(nn.Flatten(), nn.Linear(64, 10), 1).to(images.device)
    return representation_pgd(network, images, targets, norm=norm, eps=eps, step_size=STEP, steps=150)  # type: ignore[arg-type]


def test_the_nearest_point_of_a_cube(digits: Digits) -> None:
    images, targets = digits.images[:20], digits.images[20:40]
    nearest = torch.minimum(torch.maximum(targets, images - 0.1), images + 0.1)
    # Signed steps end within one step of each coordinate.
    torch.testing.assert_close(attack(images, targets, "linf", 0.1), nearest, atol=STEP + 1e-6, rtol=0)


def test_the_nearest_point_of_a_ball(digits: Digits) -> None:
    images, targets = digits.images[:20], digits.images[20:40]
    way = targets - images
    lengths = way.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    assert lengths.min() > 0.2
    torch.testing.assert_close(attack(images, targets, "l2", 0.2), images + 0.2 * way / lengths, atol=1e-5, rtol=0)


def test_another_network_is_approached_inside_ball_and_pixel_range(network: Network, digits: Digits) -> None:
    images, targets = digits.images[1000:1050], digits.images[1100:1150]
    found = representation_pgd(network, images, targets, norm="linf", eps=0.3, step_size=0.05, steps=20)
    assert (found - images).abs().max() <= 0.3 + 1e-6
    assert found.min() >= 0
    assert found.max() <= 1
    with torch.no_grad():
        goal = network.representation(targets)
        before, after = ((network.representation(each) - goal).norm(dim=1) for each in (images, found))
    assert after.mean() < 0.5 * before.mean()
