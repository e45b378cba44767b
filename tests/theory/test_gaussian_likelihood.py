"""Theorems 1 to 3 of not-bugs-2019 against numerical optima that know nothing of the closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from robustfeatures.theory.gaussian_likelihood import (
    ascend,
    descend,
    learn_from_examples,
    least_cosine,
    measure,
    multiplier,
    multiplier_bounds,
    penalised_gain,
    population_distances,
    robust_variances,
    search_least_cosine,
    search_least_vulnerability,
    vulnerability,
)
from tests.runs import MemoryRun

SPECTRA = [np.array([4.0, 0.25]), np.array([1.0, 1.0, 1.0]), np.array([9.0, 2.0, 0.5, 0.1])]


@pytest.mark.parametrize("variances", SPECTRA)
@pytest.mark.parametrize("penalty", [1.5, 4.0])
def test_theorem_1_is_what_an_adversary_gains(variances: np.ndarray, penalty: float) -> None:
    """The gain is linear in v^2, so examples whose squares have the right mean give the expectation exactly."""
    strength = penalty / variances.min()
    signs = np.array([1.0, -1.0])[:, None]
    assert penalised_gain(signs * np.sqrt(variances), variances, strength) == pytest.approx(
        vulnerability(variances, strength), rel=1e-9
    )


def test_theorem_1_on_drawn_examples() -> None:
    """The gain of an example is a sum of squares of normals: its relative standard error is at most sqrt(2 / n)."""
    variances, examples = SPECTRA[2], 20_000
    distances = np.random.default_rng(0).normal(size=(examples, 4)) * np.sqrt(variances)
    gain = penalised_gain(distances, variances, 20.0)
    assert gain == pytest.approx(vulnerability(variances, 20.0), rel=4 * np.sqrt(2 / examples))


@pytest.mark.parametrize("relative", [1.005, 1.02, 1.2])
def test_theorem_1_with_a_penalty_near_its_least(relative: float) -> None:
    """One example with distances of one deviation has the mean gain of all."""
    variances = np.array([0.5, 1.0, 3.0])
    penalty = relative / 0.5
    gain = penalised_gain(np.sqrt(variances)[None], variances, penalty)
    assert gain == pytest.approx(vulnerability(variances, penalty), rel=1e-4)
    least, where = search_least_vulnerability(variances, penalty)
    assert where == pytest.approx(np.full(3, 1.5), rel=1e-3)
    assert least == pytest.approx(vulnerability(np.full(3, 1.5), penalty), rel=1e-6)


def test_theorem_1_is_least_at_the_identity() -> None:
    start = np.array([0.3, 0.5, 1.0, 2.2])
    least, where = search_least_vulnerability(start, penalty=5.0)
    assert where == pytest.approx(np.full(4, 1.0), rel=1e-4)
    assert least == pytest.approx(vulnerability(np.full(4, 1.0), 5.0), rel=1e-8)
    assert least < vulnerability(start, 5.0)


def test_an_adversary_without_a_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="penalty: 4"):
        vulnerability(np.array([0.25, 1.0]), 4.0)


def train_to_end(truth: Tensor, spread: Tensor, radii: float | list[float], *, steps: int) -> tuple[Tensor, Tensor]:
    """Mean and variances where gradient descent on the robust likelihood ends, begun at a mean of zero."""
    start = torch.zeros_like(truth), spread.sqrt()
    eps = torch.tensor(radii, dtype=torch.float64)
    return descend(population_distances(truth, spread), *start, eps, steps=steps, rate=0.5)


@pytest.mark.parametrize("variances", SPECTRA)
def test_theorem_2_is_where_adversarial_training_ends(variances: np.ndarray) -> None:
    radii = [0.05, 0.7, 5.0]
    truth = torch.linspace(-1.0, 2.0, len(variances), dtype=torch.float64).expand(3, -1)
    mean, learned = train_to_end(truth, torch.from_numpy(variances).expand(3, -1), radii, steps=600)
    assert mean.numpy() == pytest.approx(truth.numpy(), abs=1e-6)
    for row, eps in enumerate(radii):
        assert learned[row].numpy() == pytest.approx(robust_variances(variances, eps), rel=1e-6)


def test_a_strong_adversary_in_many_dimensions_throws_nothing_off() -> None:
    """At first it may spend all of eps on one coordinate, whose variance is a thousandth of its square."""
    generator = np.random.default_rng(2)
    variances = np.array([0.1, 10.0, *np.exp(generator.uniform(np.log(0.1), np.log(10.0), 128))[2:]])
    truth, eps = torch.from_numpy(generator.normal(size=128)), np.sqrt(128.0)
    mean, learned = train_to_end(truth, torch.from_numpy(variances), eps, steps=800)
    np.testing.assert_allclose(mean.numpy(), truth.numpy(), atol=1e-6)
    np.testing.assert_allclose(learned.numpy(), robust_variances(variances, eps), rtol=1e-6)


def test_theorem_2_is_the_minimum_of_the_worst_likelihood() -> None:
    """Nelder and Mead on the exact worst case, whose inner maximum is searched over the sphere."""
    variances, eps = SPECTRA[0], 0.8
    angles = np.linspace(0, np.pi / 2, 20_001)
    sphere = eps * np.stack([np.cos(angles), np.sin(angles)], axis=1)

    def worst(logarithm: np.ndarray) -> float:
        squares = ((np.sqrt(variances) + sphere) ** 2 / np.exp(logarithm)).sum(axis=1).max()
        return float(0.5 * (logarithm.sum() + squares))

    found = minimize(worst, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12})
    # The loss is flat at its minimum and the sphere a grid: errors of the square root of the grid's 1e-9.
    assert np.exp(found.x) == pytest.approx(robust_variances(variances, eps), rel=1e-3)


def test_in_one_dimension_eps_adds_to_the_deviation() -> None:
    assert robust_variances(np.array([4.0]), 0.7) == pytest.approx([2.7**2], rel=1e-12)
    assert robust_variances(np.array([4.0, 1.0]), 0.0) == pytest.approx([4.0, 1.0])


@pytest.mark.parametrize("variances", SPECTRA)
@pytest.mark.parametrize("eps", [1e-3, 0.1, 1.0, 30.0])
def test_the_multiplier_lies_within_its_bounds(variances: np.ndarray, eps: float) -> None:
    low, high = multiplier_bounds(variances, eps)
    found = multiplier(variances, eps)
    # With equal variances the lower bound is attained.
    assert low * (1 - 1e-9) <= found <= high
    learned = robust_variances(variances, eps)
    assert found > 1 / learned.min()
    # E|Mv|^2 = eps^2 for the optimal adversary M = (lambda Sigma - I)^-1 of Lemma 2.
    assert (variances / (found * learned - 1) ** 2).sum() == pytest.approx(eps**2, rel=1e-9)


def test_the_multiplier_grows_like_one_over_eps() -> None:
    """Not like eps^-1/2, as the bounds of the paper with its eps for eps^2 read; lambda eps -> tr(Sigma*^-1)^1/2."""
    variances = SPECTRA[2]
    assert 1e-5 * multiplier(variances, 1e-5) == pytest.approx(np.sqrt((1 / variances).sum()), rel=1e-3)


@pytest.mark.parametrize("variances", SPECTRA)
def test_theorem_3_robust_gradients_align_better(variances: np.ndarray) -> None:
    start = np.random.default_rng(1).normal(size=len(variances))
    assert search_least_cosine(variances, start) == pytest.approx(least_cosine(variances), abs=1e-8)
    cosines = [least_cosine(robust_variances(variances, eps)) for eps in (0.0, 0.1, 1.0, 10.0)]
    if variances.min() < variances.max():
        assert cosines == sorted(set(cosines))
    else:
        assert cosines == pytest.approx([1.0] * 4)


def test_the_adversary_of_an_example_is_the_best() -> None:
    """Against a dense search over the circle."""
    distances = torch.tensor([[0.5, -1.5], [-0.02, 0.3]], dtype=torch.float64)
    variances = torch.tensor([[2.0, 0.5]], dtype=torch.float64)
    found = torch.ones_like(distances)
    for _ in range(40):
        found = ascend(found, distances, variances, torch.tensor(0.7, dtype=torch.float64))
    angles = torch.linspace(0, 2 * np.pi, 100_001, dtype=torch.float64)
    circle = 0.7 * torch.stack([angles.cos(), angles.sin()], dim=1)
    best = (((distances[:, None] + circle) ** 2) / variances).sum(dim=2).max(dim=1).values
    reached = ((distances + found) ** 2 / variances).sum(dim=1)
    assert reached == pytest.approx(best.numpy(), rel=1e-8)


def test_against_single_examples_in_one_dimension() -> None:
    """There every example moves by eps away from the mean: the variance is E(|v| + eps)^2."""
    samples = np.random.default_rng(2).normal(size=(3000, 1)) * 2.0
    samples = np.concatenate([samples, -samples])
    mean, learned = learn_from_examples(samples, 0.5, steps=100, rate=0.5)
    assert mean == pytest.approx([0.0], abs=1e-9)
    assert learned == pytest.approx([((np.abs(samples) + 0.5) ** 2).mean()], rel=1e-9)


def test_single_examples_come_near_the_linear_adversary_in_high_dimension() -> None:
    """Section E.3.3: the norm of Mv concentrates, so the two problems draw together as d grows."""
    gaps = []
    for dimension in (1, 8, 64):
        samples = np.random.default_rng(dimension).normal(size=(500, dimension))
        eps = 0.5 * np.sqrt(dimension)
        _, learned = learn_from_examples(samples, eps, steps=60, rate=0.5)
        gaps.append(abs(learned.sum() / robust_variances(samples.var(axis=0), eps).sum() - 1))
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2]


def test_rows_of_single_examples_are_learned_from_the_mean_variances_and_radius_that_are_asked_for() -> None:
    """The plane, and equation 13 at the largest radius. Each example v moves by eps away from the mean in each axis.

    So the learned variances are at least those of the examples, and their sum lies between E|v|^2 + eps^2 and
    (sqrt(E|v|^2) + eps)^2.
    """
    mean, variances, count = [4.0, 1.0], [6.0, 0.2], 4000
    rows = measure(
        MemoryRun(),
        seed=0,
        dimensions=[2],
        condition=10.0,
        relative_eps=[0.1, 1.0],
        penalty=2.0,
        penalised_examples=50,
        plane_mean=mean,
        plane_variances=variances,
        plane_eps=[1.5],
        examples=count,
        steps=10,
        example_steps=60,
        rate=0.5,
    )
    # Five standard errors of a variance, of a mean of two of them, and of a mean of examples that have moved by eps.
    allowed = 5 * np.sqrt(2 / count)

    def assert_trace(found: float, trace: float, eps: float) -> None:
        assert (1 - allowed) * trace + eps**2 <= found <= (np.sqrt((1 + allowed) * trace) + eps) ** 2

    plane = {row["quantity"]: float(row["numerical"]) for row in rows if row["theorem"] == "plane"}
    assert_trace(plane["variance 1"] + plane["variance 2"], sum(variances), 1.5)
    for axis in range(2):
        assert plane[f"variance {axis + 1}"] >= (1 - allowed) * variances[axis]
        error = (np.sqrt(variances[axis]) + 1.5) / np.sqrt(count)
        assert plane[f"mean {axis + 1}"] == pytest.approx(mean[axis], abs=5 * error)
    (relaxed,) = (row for row in rows if row["theorem"] == "13")
    assert relaxed["adversary"] == pytest.approx(np.sqrt(2))
    assert_trace(float(relaxed["numerical"]), np.sqrt(10) + np.sqrt(0.1), np.sqrt(2))
