"""Linear classifiers: worst cases against every corner of the box, optima against other solvers, and training."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from robustfeatures.attacks import pgd
from robustfeatures.engine.batches import InMemory
from robustfeatures.measurements.linear import (
    LinearClassifier,
    TrainingProblem,
    accuracy,
    correlations,
    solve,
    to_linear_classifier,
    worst_case_margins,
)
from robustfeatures.measurements.linear_solutions import solve_standard
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.training.adversary import Attacker
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Adversary, Training
from tests.conftest import Digits

EPS = 0.2
DECAY = 1e-2


def random_problem(eps: float, *, count: int = 60, pixels: int = 3, clipped: bool = True) -> TrainingProblem:
    """Classes that overlap, in a box whose sides the adversary reaches."""
    draw = np.random.default_rng(0)
    labels = np.where(draw.random(count) < 0.4, 1.0, -1.0)
    images = np.clip(0.4 + 0.15 * labels[:, None] * np.arange(pixels) + 0.3 * draw.normal(size=(count, pixels)), 0, 1)
    return TrainingProblem(images, labels, eps, DECAY, np.full(pixels, 0.45), np.full(pixels, 0.3), clipped)


@pytest.mark.parametrize("clipped", [True, False])
def test_the_worst_margin_is_that_of_the_worst_corner(clipped: bool) -> None:
    problem = random_problem(EPS, pixels=4)
    classifier = LinearClassifier(np.array([1.5, -2.0, 0.0, 0.7]), -0.1)
    low, high = problem.images - EPS, problem.images + EPS
    if clipped:
        low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
    corners = [np.where(chosen, low, high) for chosen in product((True, False), repeat=4)]
    margins = [problem.labels * (corner @ classifier.weights + classifier.bias) for corner in corners]
    found = worst_case_margins(classifier, problem.images, problem.labels, EPS, clipped=clipped)
    np.testing.assert_allclose(found, np.min(margins, axis=0), atol=1e-12)
    right = accuracy(classifier, problem.images, problem.labels, EPS, clipped=clipped)
    assert right == np.mean(np.min(margins, axis=0) > 0)


@pytest.mark.parametrize(("clipped", "lowest", "highest"), [(True, 0.3, 0.7), (False, 0.0, 1.0)])
def test_without_bounds_in_reach_it_is_the_papers_formula(clipped: bool, lowest: float, highest: float) -> None:
    """y (w x + b) - eps |w|_1, at-odds-2019, Appendix E."""
    classifier = LinearClassifier(np.array([1.5, -2.0, 0.7]), -0.1)
    images, labels = np.random.default_rng(1).uniform(lowest, highest, (20, 3)), np.repeat([1.0, -1.0], 10)
    expected = labels * (images @ classifier.weights + classifier.bias) - EPS * np.abs(classifier.weights).sum()
    found = worst_case_margins(classifier, images, labels, EPS, clipped=clipped)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(("eps", "clipped"), [(0.0, True), (EPS, True), (EPS, False)])
def test_the_solution_is_the_optimum_that_another_method_finds(eps: float, clipped: bool) -> None:
    """Nelder-Mead uses values alone. It restarts where it stops, so that it leaves the edges of the l1 norm."""
    problem = random_problem(eps, clipped=clipped)

    def value(parameters: NDArray[np.float64]) -> float:
        return problem.objective(LinearClassifier(parameters[:-1], float(parameters[-1])))

    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 20_000, "maxfev": 20_000}
    place = np.zeros(4)
    for _ in range(4):
        other = minimize(value, place, method="Nelder-Mead", options=options)
        place = other.x + np.random.default_rng(0).normal(scale=1e-3, size=4)
    found = solve(problem)
    assert problem.objective(found) == pytest.approx(other.fun, abs=1e-7)
    assert problem.objective(found) <= other.fun + 1e-9


def test_without_an_adversary_it_is_scikit_learns() -> None:
    problem = random_problem(0.0, count=200, pixels=12)
    ours, theirs = solve(problem), solve_standard(problem, np.arange(12))
    np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-3)
    assert problem.objective(ours) == pytest.approx(problem.objective(theirs), abs=1e-8)


def test_pixels_left_out_have_no_weight() -> None:
    problem = random_problem(0.0, count=200, pixels=12)
    kept = np.array([7, 2, 11])
    found = solve_standard(problem, kept)
    assert set(np.flatnonzero(found.weights)) == set(kept)
    alone = TrainingProblem(problem.images[:, kept], problem.labels, 0.0, DECAY, problem.mean[kept], problem.std[kept])
    np.testing.assert_allclose(found.weights[kept], solve(alone).weights, atol=1e-3)


def test_correlations() -> None:
    images = np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]])
    np.testing.assert_allclose(correlations(images, np.array([1.0, -1.0])), [0.5, 0.0, 0.5])


@pytest.fixture(scope="module")
def five_or_seven(digits: Digits) -> TrainingProblem:
    chosen = (digits.labels == 5) | (digits.labels == 7)
    images = digits.images[chosen].double().numpy().reshape(int(chosen.sum()), -1)
    labels = np.where(digits.labels[chosen].numpy() == 7, 1.0, -1.0)
    mean, std = np.full(64, images.mean()), np.full(64, images.std())
    return TrainingProblem(images[:200], labels[:200], EPS, DECAY, mean, std)


def tensors(problem: TrainingProblem) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.from_numpy(problem.images).float().reshape(-1, 1, 8, 8)
    return images, torch.from_numpy((problem.labels > 0).astype(np.int64))


def linear_network(problem: TrainingProblem) -> Network:
    torch.manual_seed(0)
    network = create("linear", num_classes=2, image_shape=(1, 8, 8))
    network.set_normalisation(torch.tensor([problem.mean[0]]).float(), torch.tensor([problem.std[0]]).float())
    return network


def test_the_objective_is_that_of_a_networks_training(five_or_seven: TrainingProblem) -> None:
    """Cross-entropy on the worst images plus half the weight decay times the squared length of all parameters."""
    network = linear_network(five_or_seven)
    with torch.no_grad():
        network.head.weight[0] = -network.head.weight[1]
        network.head.bias[0] = -network.head.bias[1]
    images, labels = tensors(five_or_seven)
    worst = pgd(network, images, labels, norm="linf", eps=EPS, step_size=EPS, steps=1)
    length = sum(float(parameter.detach().square().sum()) for parameter in network.parameters())
    loss = torch.nn.functional.cross_entropy(network(worst), labels).item()
    found = to_linear_classifier(network)
    assert five_or_seven.objective(found) == pytest.approx(loss + DECAY / 2 * length, rel=1e-5)
    right = (network(worst).argmax(dim=1) == labels).double().mean().item()
    assert accuracy(found, five_or_seven.images, five_or_seven.labels, EPS) == pytest.approx(right)


@pytest.mark.parametrize("eps", [0.0, EPS])
def test_gradient_descent_comes_close_to_the_optimum(five_or_seven: TrainingProblem, eps: float) -> None:
    """It closes all but a fiftieth of the gap, and stays above the optimum."""
    problem = TrainingProblem(
        five_or_seven.images, five_or_seven.labels, eps, DECAY, five_or_seven.mean, five_or_seven.std
    )
    network = linear_network(problem)
    before = problem.objective(to_linear_classifier(network))
    images, labels = tensors(problem)
    settings = Training(epochs=100, batch_size=50, learning_rate=0.05, weight_decay=DECAY, schedule="one-cycle")
    worst = Adversary(norm="linf", eps=eps, step_size=eps, steps=1) if eps else None
    attack = worst and Attacker(network, worst, "float32")
    train(network, InMemory(images), labels, settings, seed=0, perturbation=attack)
    least = problem.objective(solve(problem))
    reached = problem.objective(to_linear_classifier(network))
    assert least <= reached <= least + 0.02 * (before - least)
