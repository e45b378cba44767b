"""Attacks on a linear network, whose images lie at known distances from its boundary."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from robustfeatures.attacks.evaluating.evaluation import EvaluatedSplit, evaluate_block
from robustfeatures.attacks.evaluating.settings import PGD, Attack, AutoAttack, CarliniWagner, Evaluation, Noise
from robustfeatures.attacks.settings import NormName
from robustfeatures.engine.batches import InMemory


@dataclass(frozen=True)
class Line:
    """A linear network of two classes, and images that lie so far apart from its boundary in L2 and in Linf."""

    network: nn.Module
    images: Tensor
    labels: Tensor
    distances: dict[str, Tensor]

    def withstand(self, norm: NormName, attack: Attack, radii: tuple[float, ...]) -> Tensor:
        """Which images (R, N) withstand the attack at each radius."""
        split = EvaluatedSplit(self.network, InMemory(self.images), self.labels, 2)
        parameters = Evaluation(split="test", norm=norm, attacks=(attack,), eps=radii)
        return torch.from_numpy(evaluate_block(split, torch.arange(len(self.images)), parameters).robust[0, 0])


class Sure(nn.Module):
    """Two logits with the same boundary, and their difference times a factor, a share of it in the second logit."""

    def __init__(self, factor: float, share: float) -> None:
        super().__init__()
        self.factor, self.share = factor, share

    def forward(self, logits: Tensor) -> Tensor:
        difference = self.factor * (logits[:, 1] - logits[:, 0])
        return torch.stack([(self.share - 1) * difference, self.share * difference], dim=1)


@pytest.fixture
def line() -> Line:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    # Grey, so that no step leaves [0, 1]. The boundary goes through the middle, so that there are all distances.
    images = 0.5 + 0.05 * torch.randn(200, 1, 4, 4)
    with torch.no_grad():
        network[1].bias -= network(torch.full((1, 1, 4, 4), 0.5))[0]
    logits = network(images).detach()
    across = (network[1].weight[1] - network[1].weight[0]).detach()
    margins = (logits[:, 1] - logits[:, 0]).abs()
    return Line(network, images, logits.argmax(1), {"l2": margins / across.norm(), "linf": margins / across.norm(p=1)})


def test_noise_breaks_nothing_beyond_a_linear_models_margin(line: Line) -> None:
    radii, exact = (0.01, 0.1, 0.4), line.distances["l2"]
    found = line.withstand("l2", Noise(kind="noise", draws=30), radii)
    for level, eps in enumerate(radii):
        assert found[level][exact > eps].all()
    # A random direction of 16 dimensions has a component of a quarter along the normal, on average; 30 have more.
    assert not found[2][exact < 0.05].any()


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_autoattack_reaches_a_linear_models_boundary_and_no_further(line: Line, norm: NormName) -> None:
    exact = line.distances[norm]
    radii = tuple(exact.quantile(torch.tensor([0.3, 0.7])).tolist())
    found = line.withstand(norm, AutoAttack(kind="autoattack", parts=("apgd-ce",)), radii)
    for level, eps in enumerate(radii):
        assert found[level][exact > eps].all()
        assert not found[level][exact < 0.95 * eps].any()


@pytest.mark.parametrize(("margin", "share"), [(45.0, 0.5), (45.0, 1.0), (200.0, 1.0)])
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_pgd_breaks_a_linear_model_that_is_sure(line: Line, norm: NormName, margin: float, share: float) -> None:
    exact = line.distances[norm]
    logits = line.network(line.images).detach()
    margins = (logits[:, 1] - logits[:, 0]).abs()
    # Below the larger radius margins are up to `margin`. At 45 the cross-entropy has gradients as short as exp(-45) and
    # none with respect to the logit of the class. At 200 it has no gradient in float32. The distances are as before.
    network = nn.Sequential(line.network, Sure(margin / margins.quantile(0.95).item(), share))
    radii = tuple(exact.quantile(torch.tensor([0.5, 0.95])).tolist())
    attack = PGD(kind="pgd", steps=40, relative_step_sizes=(0.1,))
    found = replace(line, network=network).withstand(norm, attack, radii)
    for level, eps in enumerate(radii):
        assert found[level][exact > eps].all()
        assert not found[level][exact < 0.95 * eps].any()


def test_cw_finds_the_distance_of_a_linear_model(line: Line) -> None:
    exact = line.distances["l2"]
    radii = tuple(exact.quantile(torch.tensor([0.3, 0.7])).tolist())
    attack = CarliniWagner(kind="cw-l2", searches=6, steps=100, learning_rate=0.005, initial_constant=2.0)
    found = line.withstand("l2", attack, radii)
    for level, eps in enumerate(radii):
        assert found[level][exact > eps].all()
        assert not found[level][exact < 0.95 * eps].any()
