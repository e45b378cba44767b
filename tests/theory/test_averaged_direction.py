"""The explicit attack on averaged features in the space of points, and the bounds on any biases."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from robustfeatures.theory.averaged_direction import (
    BIASES,
    accuracies_with_biases,
    attack_direction,
    crossing_radii,
    measure,
    response_changes,
)
from robustfeatures.theory.feature_averaging import Network, Task, cluster_indices, train_networks
from robustfeatures.theory.ideal_radii import TWO_CLASSES
from robustfeatures.theory.robust_radius import Readout, least_radii, make_readout
from tests.runs import MemoryRun

DIMENSION = 64
SIDES = [(2, 1), (6, 3), (10, 3), (5, 4)]


def centres(clusters: int) -> Tensor:
    return math.sqrt(DIMENSION) * torch.eye(clusters, DIMENSION)


def averaged(task: Task, biases: Tensor) -> Network:
    """Exactly averaged features with these biases (N,)."""
    mu = centres(task.clusters)
    weights = torch.stack([mu[: task.positive].sum(dim=0), mu[task.positive :].sum(dim=0)])
    weights = weights.repeat_interleave(task.neurons, dim=0)
    return Network(weights, biases, task.output_weights(weights), torch.zeros(len(weights), task.clusters))


def at_centres(network: Network, task: Task) -> tuple[Readout, Tensor]:
    places = torch.arange(task.clusters)
    labels = task.labels(places)
    readout = make_readout(network, torch.zeros(task.clusters, DIMENSION), places, labels, network.output_weights)
    return readout, response_changes(network, task, labels)


def margins(network: Network, points: Tensor, labels: Tensor) -> Tensor:
    """y f(x), the slides' f written out."""
    responses = (points.double() @ network.weights.double().T + network.biases.double()).relu()
    half = responses.shape[1] // 2
    f = responses[:, :half].mean(dim=1) - responses[:, half:].mean(dim=1)
    return torch.where(labels == 0, f, -f)


@pytest.mark.parametrize(("clusters", "positive"), SIDES)
def test_the_attack_is_the_least_perturbation_of_averaged_features(clusters: int, positive: int) -> None:
    task = Task(TWO_CLASSES, clusters, 2, positive)
    network = averaged(task, torch.zeros(4))
    readout, changes = at_centres(network, task)
    expected = torch.full((clusters,), math.sqrt(DIMENSION / clusters), dtype=torch.float64)
    torch.testing.assert_close(crossing_radii(readout, changes, 10.0), expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(least_radii(readout), expected, rtol=1e-5, atol=0)
    # The slides' vector, moved by a little less and a little more than this radius.
    mu = centres(clusters)
    slides = -mu[:positive].sum(dim=0) + mu[positive:].sum(dim=0)
    torch.testing.assert_close(attack_direction(task, DIMENSION), slides / slides.norm())
    labels = task.labels(torch.arange(clusters))
    way = torch.where(labels == 0, 1.0, -1.0)[:, None] * slides / slides.norm()
    assert (margins(network, mu + 0.999 * expected[0] * way, labels) > 0).all()
    assert (margins(network, mu + 1.001 * expected[0] * way, labels) < 0).all()


@pytest.mark.parametrize(("clusters", "positive"), SIDES)
def test_no_biases_withstand_the_attack(clusters: int, positive: int) -> None:
    """A bias for each neuron. The bounds of the docstring, for biases with which all centres are right and for all."""
    task = Task(TWO_CLASSES, clusters, 3, positive)
    generator = torch.Generator().manual_seed(0)
    right = largest = 0.0
    for _ in range(300):
        network = averaged(task, DIMENSION * torch.randn(6, generator=generator))
        readout, changes = at_centres(network, task)
        found = crossing_radii(readout, changes, 100.0)
        if (found > 0).all():
            right += 1
            bound = math.sqrt(DIMENSION * clusters) / min(positive, clusters - positive)
            assert float(found.max()) <= bound * (1 + 1e-5)
            largest = max(largest, float(found.max()) / math.sqrt(DIMENSION / clusters))
        if 2 * positive == clusters:
            by_side = (found[readout.labels == 0].max(), found[readout.labels == 1].max())
            assert float(min(by_side)) <= math.sqrt(DIMENSION / clusters) * (1 + 1e-5)
    assert right > 20
    # The theorem's radius alone is not enough.
    assert largest > 1.5


@pytest.mark.parametrize(("clusters", "positive"), SIDES)
def test_one_bias_for_each_side_moves_the_radius_from_one_side_to_the_other(clusters: int, positive: int) -> None:
    task = Task(TWO_CLASSES, clusters, 2, positive)
    network = averaged(task, DIMENSION * torch.tensor([0.4, 0.4, -0.4, -0.4]))
    readout, changes = at_centres(network, task)
    expected = math.sqrt(DIMENSION / clusters) * torch.where(readout.labels == 0, 1.8, 0.2).double()
    # With b_- = -0.4 d the negative neurons are silent at J_+ until t = 0.4 d / |J_-|, and so on: only upper bounds.
    assert (crossing_radii(readout, changes, 100.0) <= expected * (1 + 1e-5)).all()
    network = averaged(task, DIMENSION * torch.tensor([1.0, 1.0, 0.2, 0.2]))
    readout, changes = at_centres(network, task)
    torch.testing.assert_close(crossing_radii(readout, changes, 100.0), expected, rtol=1e-5, atol=0)


def test_the_best_biases_are_those_of_a_search_in_the_space_of_points() -> None:
    task = Task(TWO_CLASSES, 4, 2, 1)
    (network,) = train_networks([task], dimension=60, samples=80, deviation=1e-3, learning_rate=0.02, steps=60, seed=3)
    noise = torch.randn((30, 60), generator=torch.Generator().manual_seed(1))
    places = cluster_indices(30, 4)
    labels = task.labels(places)
    readout = make_readout(network, noise, places, labels, network.output_weights)
    radii = torch.tensor([0.0, 2.0, 4.0, 6.0, 9.0], dtype=torch.float64)
    changes = response_changes(network, task, labels)
    clean, robust = accuracies_with_biases(network, task, readout, changes, radii)
    points = noise + math.sqrt(60) * torch.eye(4, 60)[places]
    slides = -torch.eye(4, 60)[:1].sum(dim=0) + torch.eye(4, 60)[1:].sum(dim=0)
    way = torch.where(labels == 0, 1.0, -1.0)[:, None] * slides / 2
    own = (points @ network.weights.T)[torch.arange(2).repeat_interleave(2) == labels[:, None]].mean()
    pairs = [(first, second) for first in BIASES for second in BIASES]
    for number in range(0, len(pairs), 7):
        biases = own * torch.tensor(pairs[number]).repeat_interleave(2)
        biased = Network(network.weights, biases, network.output_weights, network.coefficients)
        held = torch.stack([margins(biased, points + radius * way, labels) > 0 for radius in radii])
        assert torch.equal(held.double().mean(dim=1), robust[number])
        assert float(clean[number]) == float(robust[number, 0])


def test_rows_of_a_trained_network() -> None:
    """A constant answer has the share of the larger side at every radius; no accurate biases reach 2.5 sqrt(d/k)."""
    asked = {"dimension": 400, "samples": 200, "deviation": 1e-5, "learning_rate": 0.005, "steps": 100, "seed": 0}
    multiples = (0.0, 0.7, 1.4, 2.5)
    relative = [multiple / math.sqrt(5) for multiple in multiples]
    found = measure(
        MemoryRun({}), clusters=5, neurons=2, test_samples=200, relative_radii=relative, positive_share=0.4, **asked
    )
    accuracy = {
        biases: [row["accuracy"] for row in found if row["biases"] == biases]
        for biases in ("trained biases", "biases with perfect accuracy", "all biases")
    }
    assert accuracy["trained biases"][:2] == [1.0, 1.0]
    assert accuracy["trained biases"][2:] == [0.0, 0.0]
    assert accuracy["biases with perfect accuracy"][3] == 0.0
    assert accuracy["all biases"][3] == 0.6
    for biases in ("biases with perfect accuracy", "all biases"):
        assert all(best >= own for best, own in zip(accuracy[biases], accuracy["trained biases"], strict=True))
