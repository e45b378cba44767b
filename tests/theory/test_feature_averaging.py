"""Gradient descent on clusters against autograd, scalar recursions and the theorems."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from robustfeatures.theory.feature_averaging import (
    Network,
    Task,
    accuracy,
    cluster_indices,
    draw_initial_weights,
    gradient_descent,
    measure,
    sides,
    train_networks,
)
from robustfeatures.theory.ideal_radii import K_CLASSES, TWO_CLASSES
from robustfeatures.theory.robust_radius import draw_test_points
from tests.runs import MemoryRun

SAMPLES, DIMENSION, STEPS, RATE = 24, 40, 12, 0.05


def draw_start(tasks: list[Task], seed: int = 0) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(SAMPLES, DIMENSION, generator=generator, dtype=torch.float64)
    return noise, [draw_initial_weights(task, DIMENSION, 0.1, generator, torch.float64) for task in tasks]


def points(noise: Tensor, clusters: int) -> Tensor:
    """The centres sqrt(d) e_j in turns, plus noise."""
    centres = math.sqrt(noise.shape[1]) * torch.eye(clusters, noise.shape[1], dtype=noise.dtype)
    return centres[cluster_indices(len(noise), clusters)] + noise


def two_class_loss(weights: Tensor, biases: Tensor, x: Tensor, signs: Tensor, neurons: int) -> Tensor:
    """The slides' f, written out, under log(1 + e^(-y f))."""
    responses = (x @ weights.T + biases).relu()
    f = responses[:, :neurons].mean(dim=1) - responses[:, neurons:].mean(dim=1)
    return softplus(-signs * f).mean()


def k_class_loss(weights: Tensor, x: Tensor, labels: Tensor, neurons: int) -> Tensor:
    outputs = (x @ weights.T).relu().unflatten(1, (-1, neurons)).mean(dim=2)
    return cross_entropy(outputs, labels)


@pytest.mark.parametrize("positive", [1, 2])
def test_networks_trained_together_follow_autograd(positive: int) -> None:
    """Two networks of different k share one product per step. Each takes the steps that autograd takes alone."""
    tasks = [Task(TWO_CLASSES, 4, 3, positive), Task(K_CLASSES, 6, 2, 3)]
    noise, starts = draw_start(tasks)
    two, many = gradient_descent(noise, tasks, starts, learning_rate=RATE, steps=STEPS)

    weights, biases = (tensor.clone().requires_grad_() for tensor in starts[0])
    clusters = cluster_indices(SAMPLES, 4)
    signs = torch.where(clusters < positive, 1.0, -1.0).double()
    for _ in range(STEPS):
        loss = two_class_loss(weights, biases, points(noise, 4), signs, 3)
        found = torch.autograd.grad(loss, (weights, biases))
        weights, biases = (
            (value - RATE * gradient).detach().requires_grad_()
            for value, gradient in zip((weights, biases), found, strict=True)
        )
    torch.testing.assert_close(two.weights, weights.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(two.biases, biases.detach(), rtol=1e-10, atol=1e-12)

    weights = starts[1][0].clone().requires_grad_()
    for _ in range(STEPS):
        (gradient,) = torch.autograd.grad(
            k_class_loss(weights, points(noise, 6), cluster_indices(SAMPLES, 6), 2), weights
        )
        weights = (weights - RATE * gradient).detach().requires_grad_()
    torch.testing.assert_close(many.weights, weights.detach(), rtol=1e-10, atol=1e-12)
    assert torch.equal(many.biases, torch.zeros(12, dtype=torch.float64))
    assert not torch.equal(two.weights, starts[0][0])


def test_lambda_is_what_the_weights_hold_of_each_centre() -> None:
    """n < d, so W - W_0 = A^T X has one A, and lambda_j is its sum over cluster j."""
    task = Task(TWO_CLASSES, 4, 3, 2)
    noise, starts = draw_start([task])
    (network,) = gradient_descent(noise, [task], starts, learning_rate=RATE, steps=STEPS)
    combination = torch.linalg.lstsq(points(noise, 4).T, (network.weights - starts[0][0]).T).solution
    clusters = cluster_indices(SAMPLES, 4)
    expected = torch.stack([combination[clusters == j].sum(dim=0) for j in range(4)], dim=1)
    torch.testing.assert_close(network.coefficients, expected, rtol=1e-8, atol=1e-10)


def test_without_noise_lambda_obeys_a_scalar_recursion() -> None:
    """If every neuron is on for its own class alone, z = <w, mu> is the only variable of either network."""
    # Far enough below zero that the biases, which grow by at most 0.21, turn no neuron on.
    clusters, neurons, steps, small = 4, 3, 50, 0.1
    noise = torch.zeros(8, DIMENSION, dtype=torch.float64)
    step = RATE / (neurons * clusters)

    two = Task(TWO_CLASSES, clusters, neurons, clusters // 2)
    side = sides(torch.arange(clusters), clusters // 2)
    own_side = side[None] == torch.tensor([0, 1]).repeat_interleave(neurons)[:, None]
    weights = torch.zeros(2 * neurons, DIMENSION, dtype=torch.float64)
    weights[:, :clusters] = small * (2 * own_side.double() - 1)
    (network,) = gradient_descent(
        noise, [two], [(weights, torch.zeros(6, dtype=torch.float64))], learning_rate=RATE, steps=steps
    )
    coefficient = bias = 0.0
    for _ in range(steps):
        z = small * math.sqrt(DIMENSION) + DIMENSION * coefficient + bias
        slope = 1 / (1 + math.exp(z))
        coefficient += step * slope
        bias += clusters / 2 * step * slope
    torch.testing.assert_close(network.coefficients, coefficient * own_side.double(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(network.biases, torch.full((6,), bias, dtype=torch.float64))

    many = Task(K_CLASSES, clusters, neurons, clusters // 2)
    diagonal = torch.eye(clusters, dtype=torch.float64).repeat_interleave(neurons, dim=0)
    weights = torch.zeros(clusters * neurons, DIMENSION, dtype=torch.float64)
    weights[:, :clusters] = small * (2 * diagonal - 1)
    (network,) = gradient_descent(noise, [many], [(weights, torch.zeros(12))], learning_rate=RATE, steps=steps)
    coefficient = 0.0
    for _ in range(steps):
        z = small * math.sqrt(DIMENSION) + DIMENSION * coefficient
        coefficient += step * (1 - math.exp(z) / (math.exp(z) + clusters - 1))
    torch.testing.assert_close(network.coefficients, coefficient * diagonal)


def test_one_neuron_is_dead_at_the_start_as_often_as_exchangeability_says() -> None:
    """1 / (n/k + 1); 4 standard errors of the binomial, and O(1/sqrt(d)) because |xi|^2 is only about d."""
    trials, own, dimension = 4000, 4, 400
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(trials, dimension, generator=generator)
    noise = torch.randn(trials, own, dimension, generator=generator)
    preactivations = torch.einsum("td,tnd->tn", weights, noise) + math.sqrt(dimension) * weights[:, :1]
    share = float((preactivations < 0).all(dim=1).float().mean())
    probability = 1 / (own + 1)
    assert share == pytest.approx(probability, abs=4 * math.sqrt(probability * (1 - probability) / trials) + 0.005)


@pytest.fixture(scope="module")
def networks() -> tuple[Network, Network]:
    tasks = [Task(TWO_CLASSES, 4, 5, 2), Task(K_CLASSES, 4, 5, 2)]
    two, many = train_networks(
        tasks, dimension=1000, samples=400, deviation=1e-5, learning_rate=1e-3, steps=100, seed=1
    )
    return two, many


def pushed_away(held: int) -> float:
    """How large lambda of a centre that is not the neuron's own can become, as a share of its own ones.

    Points there push the neuron away while it is on: one step in a hundred at the start, then until -lambda d exceeds
    the largest of n = 400 products with the noise, normal with variance `held` lambda_own^2 d.
    """
    return 1 / 100 + math.sqrt(held / 1000) * math.sqrt(2 * math.log(400))


def test_two_classes_average(networks: tuple[Network, Network]) -> None:
    """Own centres alike, within the spread of the sums of their n/k points; the others small; few errors."""
    two, _ = networks
    own = torch.stack([two.coefficients[:5, :2], two.coefficients[5:, 2:]])
    assert (own > 0).all()
    # Only the first step, where neurons are on at random, treats clusters unlike: at most one in a hundred steps.
    assert own.max() / own.min() < 1 + 3 / 100
    other = torch.stack([two.coefficients[:5, 2:], two.coefficients[5:, :2]])
    assert other.abs().max() < pushed_away(held=2) * own.min()
    # w is the sum of 2 centres and of the noise of n/2 points, n/k = 100 to a centre.
    cosines = torch.stack([two.cosines()[:5, :2], two.cosines()[5:, 2:]])
    torch.testing.assert_close(
        cosines, torch.full_like(cosines, 1 / math.sqrt(2 * (1 + 1 / 100))), atol=5 / math.sqrt(1000), rtol=0
    )
    noise = torch.randn(400, 1000, generator=torch.Generator().manual_seed(5))
    assert accuracy(two, noise, Task(TWO_CLASSES, 4, 5, 2)) == 1.0


def test_k_classes_decouple(networks: tuple[Network, Network]) -> None:
    _, many = networks
    by_class = many.coefficients.unflatten(0, (4, 5)).mean(dim=1)
    diagonal = by_class.diagonal()
    assert (diagonal > 0).all()
    assert (by_class - torch.diag(diagonal)).abs().max() < pushed_away(held=1) * diagonal.min()
    noise = torch.randn(400, 1000, generator=torch.Generator().manual_seed(5))
    assert accuracy(many, noise, Task(K_CLASSES, 4, 5, 2)) == 1.0


def test_biases_may_have_a_deviation_of_their_own() -> None:
    """Within 5 standard errors of the deviation, deviation / sqrt(2 n)."""
    task = Task(TWO_CLASSES, 2, 1000, 1)

    def draw(**options: float) -> tuple[Tensor, Tensor]:
        return draw_initial_weights(task, 50, 0.2, torch.Generator().manual_seed(0), torch.float64, **options)

    weights, biases = draw(bias_deviation=0.01)
    assert float(weights.std()) == pytest.approx(0.2, rel=5 / math.sqrt(2 * 100_000))
    assert float(biases.std()) == pytest.approx(0.01, rel=5 / math.sqrt(2 * 2000))
    assert torch.equal(weights, draw()[0])
    torch.testing.assert_close(draw()[1], 20 * biases)


def test_rows_of_unequal_sides() -> None:
    """lambda d is the response to a centre that descent adds; one neuron a class, so rows hold neurons themselves."""
    asked = {"dimension": 200, "samples": 80, "deviation": 1e-3, "learning_rate": 0.01, "steps": 30, "seed": 2}
    found = measure(MemoryRun({}), clusters=4, neurons=1, test_samples=40, positive_share=0.3, **asked)
    rows = {(row["network"], row["neuron"], row["centre"]): row for row in found}
    assert len(rows) == 2 * 4 + 4 * 4
    # round(0.3 x 4) = 1 cluster is positive.
    assert [rows[TWO_CLASSES, 0, centre]["own"] for centre in range(4)] == [True, False, False, False]
    assert [rows[TWO_CLASSES, 1, centre]["own"] for centre in range(4)] == [False, True, True, True]
    assert all(rows[K_CLASSES, row, centre]["own"] == (row == centre) for row in range(4) for centre in range(4))
    tasks = [Task(TWO_CLASSES, 4, 1, 1), Task(K_CLASSES, 4, 1, 1)]
    for task, network in zip(tasks, train_networks(tasks, **asked), strict=True):
        for neuron, lambdas in enumerate(network.coefficients.tolist()):
            for centre, expected in enumerate(lambdas):
                assert rows[task.kind, neuron, centre]["coefficient"] == pytest.approx(200 * expected, rel=1e-5)


def test_rows_of_several_neurons_hold_class_means_and_the_accuracy_on_fresh_points() -> None:
    """As many test points as training points, in few dimensions, where neither network is right on all."""
    asked = {"dimension": 8, "samples": 60, "deviation": 1e-3, "learning_rate": 0.02, "steps": 60, "seed": 3}
    rows = measure(MemoryRun(), clusters=4, neurons=3, test_samples=60, **asked)
    tasks = [Task(TWO_CLASSES, 4, 3, 2), Task(K_CLASSES, 4, 3, 2)]
    two, many = train_networks(tasks, **asked)
    means = 8 * torch.stack([many.coefficients[3 * label : 3 * label + 3].mean(dim=0) for label in range(4)])
    held = torch.tensor([row["coefficient"] for row in rows if row["network"] == K_CLASSES]).view(4, 4)
    torch.testing.assert_close(held.float(), means, rtol=1e-4, atol=1e-5)
    # The points at which E2 looks for perturbations.
    noise, clusters = draw_test_points(tasks[0], 8, 60, seed=3)
    x = points(noise, 4)
    responses = (x @ two.weights.T + two.biases).relu()
    positive = responses[:, :3].mean(dim=1) > responses[:, 3:].mean(dim=1)
    outputs = (x @ many.weights.T).relu().unflatten(1, (4, 3)).mean(dim=2)
    right = {TWO_CLASSES: positive == (clusters < 2), K_CLASSES: outputs.argmax(dim=1) == clusters}
    expected = {name: pytest.approx(each.double().mean().item()) for name, each in right.items()}
    assert {row["network"]: row["accuracy"] for row in rows} == expected
    assert len({float(row["accuracy"]) for row in rows} | {1.0}) == 3
