"""Derived sets that attack: their images are those of PGD towards, or away from, the labels of the set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from robustfeatures.attacks import pgd
from robustfeatures.derived import targeted_attack, untargeted_attack
from robustfeatures.derived.settings import TargetedAttack, UntargetedAttack
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.models.network import Network
from tests.conftest import Digits
from tests.measurements.conftest import split_of

CPU = torch.device("cpu")
# The steps are a third of the radius and reach the surface of the ball: each setting changes where they end.
ATTACKS: list[dict[str, Any]] = [
    {"norm": "linf", "eps": 0.15, "step_size": 0.05, "steps": 4},
    {"norm": "l2", "eps": 0.45, "step_size": 0.15, "steps": 4},
]
# Images from within the split, so that image and label must be of the same row.
ROWS = np.arange(30, 60)


@pytest.mark.parametrize("attack", ATTACKS, ids=["linf", "l2"])
def test_images_of_targeted_sets_move_towards_the_label_of_the_set(
    network: Network, digits: Digits, attack: dict[str, Any]
) -> None:
    """D_det's label is y + 1, and PGD lowers the cross-entropy of it."""
    original = split_of(digits, slice(1000, 1100))
    method = TargetedAttack(kind="targeted-attack", target="next", **attack)
    found = targeted_attack.derive(FrozenNetwork(network), original, method, seed=0, device=CPU)
    labels = (digits.labels[1000:1100] + 1) % 10
    assert found.labels.tolist() == labels.tolist()
    images = digits.images[1000:1100][ROWS]
    expected = pgd(FrozenNetwork(network), images, labels[ROWS], targeted=True, **attack)
    np.testing.assert_allclose(found.images(ROWS, lambda steps: None), expected, atol=1e-6)


@pytest.mark.parametrize("attack", ATTACKS, ids=["linf", "l2"])
def test_images_of_untargeted_sets_move_away_from_their_own_label(
    network: Network, digits: Digits, attack: dict[str, Any]
) -> None:
    original = split_of(digits, slice(1000, 1100))
    method = UntargetedAttack(kind="untargeted-attack", **attack)
    found = untargeted_attack.derive(FrozenNetwork(network), original, method, seed=0, device=CPU)
    labels = digits.labels[1000:1100]
    assert found.labels.tolist() == labels.tolist()
    expected = pgd(FrozenNetwork(network), digits.images[1000:1100][ROWS], labels[ROWS], **attack)
    np.testing.assert_allclose(found.images(ROWS, lambda steps: None), expected, atol=1e-6)
