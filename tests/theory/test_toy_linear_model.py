"""The toy linear model of two-pathways-2021: simulation, closed form and thresholds against independent ways."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from robustfeatures.engine.randomness import make_generator
from robustfeatures.theory.toy_linear_model import (
    TrainingSets,
    Weights,
    advantage,
    closed_form,
    descend,
    draw_training_sets,
    first_step_bound,
    largest_rate,
    limit_weights,
    measure,
    outputs,
    population_accuracy,
    printed_threshold,
    threshold,
    zero_weights,
)
from tests.runs import MemoryRun

P, K, EPS = np.array([0.1, 0.3, 0.2, 0.45]), np.array([1.5, 4.0, 20.0, 2.0]), np.array([0.2, 0.9, 0.5, 0.1])


def training_set(examples: int, dimension: int) -> TrainingSets:
    return draw_training_sets(np.random.default_rng(0), P, K, EPS, examples=examples, dimension=dimension)


def dense(data: TrainingSets, cell: int) -> np.ndarray:
    """A (n, 2 + n) of one cell, with the noise coordinates in it written out."""
    examples = data.labels.shape[1]
    noise = np.zeros((examples, examples))
    noise[np.arange(examples), data.noise[cell].numpy()] = 1
    return np.concatenate([data.features[cell].numpy(), noise], axis=1)


def test_the_distribution_is_the_papers() -> None:
    data = training_set(20_000, 10**9)
    robust = (data.features[..., 0] * data.labels).numpy()
    nonrobust = (data.features[..., 1] * data.labels).numpy() / EPS[:, None]
    assert set(np.unique(robust)) == {-1.0, 1.0}
    # Means of 20 000 signs have a standard error of at most 1 / sqrt(20 000).
    assert robust.mean(axis=1) == pytest.approx(1 - 2 * P, abs=5 / math.sqrt(20_000))
    assert nonrobust.mean(axis=1) == pytest.approx(1 - 2 * P / K, abs=5 / math.sqrt(20_000))
    assert data.labels.mean().item() == pytest.approx(0, abs=5 / math.sqrt(80_000))


def test_examples_share_a_noise_coordinate_as_often_as_they_should() -> None:
    """n draws from d - 2 coordinates hit (d - 2) (1 - (1 - 1 / (d - 2))^n) of them, with a variance below n."""
    data = training_set(300, 102)
    expected = 100 * (1 - 0.99**300)
    for row in data.noise:
        assert row.min() == 0
        assert row.max() + 1 == len(row.unique())
        assert len(row.unique()) == pytest.approx(expected, abs=5 * math.sqrt(100))
    assert (training_set(50, 10**12).noise.sort(dim=1).values == torch.arange(50)).all()


@pytest.mark.parametrize("dimension", [30, 10**9])
def test_the_batch_descends_as_each_cell_does_alone(dimension: int) -> None:
    data = training_set(40, dimension)
    rate = torch.from_numpy(0.7 * largest_rate(EPS, 40))
    found = descend(data, zero_weights(data), rate, 25)
    for cell in range(4):
        matrix, labels = dense(data, cell), data.labels[cell].numpy()
        weights = np.zeros(42)
        for _ in range(25):
            weights += float(rate[cell]) / 40 * matrix.T @ (labels - matrix @ weights)
        assert found.first[cell].numpy() == pytest.approx(weights[:2], abs=1e-12)
        assert found.noise[cell].numpy() == pytest.approx(weights[2:], abs=1e-12)
        assert outputs(data, found)[cell].numpy() == pytest.approx(matrix @ weights, abs=1e-12)


@pytest.mark.parametrize("steps", [1, 7, 300])
def test_the_closed_form_is_the_simulation(steps: int) -> None:
    data = training_set(40, 10**12)
    rate = torch.from_numpy(largest_rate(EPS, 40))
    found = descend(data, zero_weights(data), rate, steps)
    assert torch.allclose(found.first, closed_form(data, rate, steps), atol=1e-12)


def test_in_the_end_it_is_the_least_norm_interpolation() -> None:
    """w_T = A'(A A')^-1 B, which numpy's pseudo-inverse finds without the algebra of the paper."""
    data = training_set(40, 10**12)
    found = closed_form(data, torch.ones(4, dtype=torch.float64), math.inf)
    for cell in range(4):
        exact = np.linalg.pinv(dense(data, cell)) @ data.labels[cell].numpy()
        assert found[cell].numpy() == pytest.approx(exact[:2], abs=1e-10)
        assert limit_weights(data).noise[cell].numpy() == pytest.approx(exact[2:], abs=1e-10)


@pytest.mark.parametrize("dimension", [30, 10**12])
def test_theorem_2_the_sample_is_fitted(dimension: int) -> None:
    """No direction decays slower than (1 - eta / n)^t, so the residual is at most sqrt(n) times that.

    Examples that share a noise coordinate only make eigenvalues larger, but may make a label impossible to fit.
    """
    data = training_set(20, dimension)
    rate = torch.from_numpy(0.9 * largest_rate(EPS, 20))
    residuals = data.labels - outputs(data, descend(data, zero_weights(data), rate, 400))
    bound = math.sqrt(20) * (1 - float(rate.min()) / 20) ** 400
    if dimension > 100:
        assert residuals.abs().max() <= bound
    else:
        assert residuals.abs().max() > bound


def test_at_the_largest_rate_no_direction_grows() -> None:
    for seed in range(20):
        data = draw_training_sets(np.random.default_rng(seed), P, K, EPS, examples=15, dimension=10**12)
        for cell in range(4):
            matrix = dense(data, cell)
            largest = np.linalg.eigvalsh(matrix @ matrix.T).max()
            assert largest_rate(EPS, 15)[cell] * largest / 15 <= 2 + 1e-12


def test_the_population_accuracy_is_that_of_fresh_examples() -> None:
    dimension, count = 30, 40_000
    data = training_set(25, dimension)
    rate = torch.from_numpy(0.9 * largest_rate(EPS, 25))
    found = descend(data, zero_weights(data), rate, 300)
    exact = population_accuracy(found, P, K, EPS, dimension)
    generator = np.random.default_rng(5)
    for cell in range(4):
        labels = generator.choice([-1, 1], count)
        one = np.where(generator.random(count) < P[cell], -1, 1)
        two = np.where(generator.random(count) < P[cell] / K[cell], -1, 1)
        # Which of the 28 coordinates carry the weights does not matter.
        noise = np.zeros(dimension - 2)
        noise[:25] = found.noise[cell].numpy()
        first = found.first[cell].numpy()
        values = labels * (one * first[0] + two * EPS[cell] * first[1])
        values = values + noise[generator.integers(0, dimension - 2, count)]
        assert (values * labels > 0).mean() == pytest.approx(exact[cell], abs=5 / (2 * math.sqrt(count)))


def test_accuracies_of_the_theorems() -> None:
    """1 - p where w1 > eps w2 > 0, 1 - p/k where eps w2 > w1 > 0."""
    dimension = 10**12
    nothing = torch.zeros(4, 5, dtype=torch.float64)
    for weight, expected in ((0.0, 1 - P), (1e3, 1 - P / K)):
        first = torch.tensor([[1.0, weight]] * 4, dtype=torch.float64)
        assert population_accuracy(Weights(first, nothing), P, K, EPS, dimension) == pytest.approx(expected)


def grid() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    cells = np.meshgrid([0.02, 0.1, 0.3, 0.45], np.geomspace(1.01, 300, 40), [0.03, 0.1, 0.3, 0.6, 0.95])
    p, k, eps = (axis.ravel() for axis in cells)
    return p, k, eps


@pytest.mark.parametrize("examples", [20, 1000])
def test_the_threshold_is_where_the_limit_changes(examples: int) -> None:
    """Against the 2 x 2 system of the limit, solved by numpy: w = (I + G)^-1 g with the means for a, b and beta."""
    p, k, eps = grid()
    a, b = 1 - 2 * p, 1 - 2 * p / k
    matrix = np.eye(2) + examples * np.moveaxis(np.array([[np.ones_like(p), eps * a * b], [eps * a * b, eps**2]]), 2, 0)
    first = np.linalg.solve(matrix, examples * np.stack([a, eps * b], axis=1)[..., None])[..., 0]
    wins = eps * first[:, 1] > first[:, 0]
    assert 0 < wins.sum() < len(wins)
    assert ((advantage(p, k, eps, examples) > 0) == wins).all()
    assert ((k > threshold(p, eps, examples)) == wins).all()


def test_the_printed_threshold_counts_the_examples_half() -> None:
    """To first order in p the derived threshold is the printed one with 2 n eps^2 for n eps^2."""
    p, eps, examples = np.array([1e-4]), np.array([0.4]), 30_000
    derived = threshold(p, eps, examples)
    doubled = printed_threshold(p, eps, 2 * examples, power=2)
    # 2p (1 + 2 n eps^2) - 2p (1 - eps^2) with n for 2n differs from it by 2p eps^2 alone.
    assert derived == pytest.approx(doubled, rel=2e-3)
    assert printed_threshold(p, eps, examples, power=2) > 4 * derived


def test_simulation_sides_with_the_derived_threshold() -> None:
    """Where the derived threshold is passed, and the printed one exists for no k, the non-robust feature wins.

    The advantage of a sample differs from its limit through n eps^2 (b - a) (1 + beta), whose standard deviation is
    about 4 eps^2 sqrt(n (p + p/k)); here the advantage is more than five of them.
    """
    examples, p, eps = 8000, 0.05, 0.0316
    chances, sizes = np.full(30, p), np.full(30, eps)
    assert printed_threshold(chances, sizes, examples, power=2)[0] == np.inf
    for ratio, wins in ((40.0, True), (1.2, False)):
        assert (ratio > threshold(chances, sizes, examples)[0]) == wins
        ratios = np.full(30, ratio)
        deviation = 4 * eps**2 * math.sqrt(examples * (p + p / ratio))
        assert abs(advantage(chances, ratios, sizes, examples)[0]) > 5 * deviation
        data = draw_training_sets(np.random.default_rng(3), chances, ratios, sizes, examples=examples, dimension=10**12)
        found = closed_form(data, torch.ones(30, dtype=torch.float64), math.inf).numpy()
        assert ((eps * found[:, 1] > found[:, 0]) == wins).all()


def test_theorem_1_after_one_step() -> None:
    """w1 >= eps w2 just if a >= eps^2 b, which for many examples is the bound on eps."""
    examples = 20_000
    inside = 0.9 * first_step_bound(P, K)
    outside = 1.1 * first_step_bound(P, K)
    for sizes, wins in ((inside, True), (outside, False)):
        data = draw_training_sets(np.random.default_rng(1), P, K, sizes, examples=examples, dimension=10**12)
        found = descend(data, zero_weights(data), torch.ones(4, dtype=torch.float64), 1)
        ahead = found.first[:, 0].numpy() >= sizes * found.first[:, 1].numpy()
        # a and b have a standard error of at most 1 / sqrt(n); the bound is left by a tenth of it.
        slack = abs((1 - 2 * P) - sizes**2 * (1 - 2 * P / K))
        sure = slack > 5 * (1 + sizes**2) / math.sqrt(examples)
        assert sure.sum() >= 3
        assert (ahead[sure] == wins).all()
        if wins:
            accuracy = population_accuracy(found, P, K, sizes, 10**12)
            assert accuracy[sure] == pytest.approx((1 - P)[sure], abs=1e-6)


def test_rows_hold_eps_times_the_second_weight_at_the_relative_rate() -> None:
    """One step from 0 leads to (rate / n) A'B: w1 = rate s'B / n and w2 = rate r'B / n."""
    examples, relative_rate = 40, 0.5
    ratios, radii = np.array([2.0, 2.0, 20.0, 20.0]), np.array([0.1, 0.5, 0.1, 0.5])
    asked = {"examples": examples, "dimension": 10**12}
    rows = measure(
        MemoryRun(), seed=0, p=0.1, k=[2.0, 20.0], eps=[0.1, 0.5], relative_rate=relative_rate, steps=[1], **asked
    )
    data = draw_training_sets(make_generator(0, "toy linear model"), np.full(4, 0.1), ratios, radii, **asked)
    assert [(row["k"], row["eps"]) for row in rows[:4]] == list(zip(ratios, radii, strict=True))
    for cell, row in enumerate(rows[:4]):
        eps = radii[cell]
        rate = relative_rate * 2 / (1 + eps**2 + 1 / examples)
        first, second = rate / examples * dense(data, cell)[:, :2].T @ data.labels[cell].numpy()
        assert row["step"] == 1
        assert row["robust_weight"] == pytest.approx(first)
        assert row["nonrobust_weight"] == pytest.approx(eps * second)
