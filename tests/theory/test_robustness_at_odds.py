"""The theorems of at-odds-2019, and the two solvers, against simulation and against each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from robustfeatures.errors import UserError
from robustfeatures.theory.robustness_at_odds import (
    accuracy,
    averaging_weights,
    draw_examples,
    expected_hinge,
    fit_adversarial_svm,
    fit_population_svm,
    fit_standard_svm,
    gated_accuracies,
    measure,
    robust_accuracy_bound,
)
from tests.runs import MemoryRun

P, DIMENSION = 0.95, 100
ETA = 4 / math.sqrt(DIMENSION)


def loss(weights: np.ndarray, signed: np.ndarray, eps: float, penalty: float) -> float:
    worst_margins = signed @ weights - eps * np.abs(weights).sum()
    return float(np.maximum(0, 1 - worst_margins).mean() + penalty * weights @ weights / 2)


@pytest.fixture(scope="module")
def signed() -> np.ndarray:
    return draw_examples(np.random.default_rng(0), 2000, DIMENSION, p=P, eta=ETA)


@pytest.mark.parametrize("eps", [0.0, 0.1, 2 * ETA])
def test_accuracies_are_those_of_a_sample_under_its_worst_attack(eps: float) -> None:
    sample = draw_examples(np.random.default_rng(1), 40_000, DIMENSION, p=P, eta=ETA)
    weights = np.random.default_rng(2).normal(1.0, 1.0, DIMENSION + 1)
    weights[0] = 12.0
    attacked = sample - eps * np.sign(weights)
    # A share of n examples has a standard error of at most 1 / (2 sqrt(n)).
    assert (attacked @ weights > 0).mean() == pytest.approx(accuracy(weights, eps, p=P, eta=ETA), abs=5 / 400)


def test_the_averaging_classifier() -> None:
    """Section 2.1: above 99 % for eta >= 3 / sqrt(d), below 1 % at eps = 2 eta."""
    eta = 3 / math.sqrt(DIMENSION)
    assert accuracy(averaging_weights(DIMENSION), 0.0, p=P, eta=eta) > 0.99
    assert accuracy(averaging_weights(DIMENSION), 2 * eta, p=P, eta=eta) < 0.01


@pytest.mark.parametrize(("mean", "deviation"), [(2.0, 0.5), (-1.0, 2.0), (0.3, 0.0)])
def test_the_expected_hinge(mean: float, deviation: float) -> None:
    values = np.maximum(0, 1 - np.random.default_rng(0).normal(mean, deviation, 200_000))
    assert expected_hinge(mean, deviation) == pytest.approx(
        values.mean(), abs=5 * max(values.std(), 1e-12) / math.sqrt(200_000)
    )


def test_constants_of_lemma_d_2() -> None:
    """E max(0, 1 + 1/sqrt2 - N(4/sqrt2, 1/2)) > 0.016 and E max(0, 1 - N(4, 1)) < 0.0004, whence p <= 0.975."""
    half = math.sqrt(0.5)
    assert expected_hinge(4 * half - half, half) > 0.016
    assert expected_hinge(4.0, 1.0) < 0.0004
    assert 0.016 * (1 - 0.975) >= 0.0004 - 1e-12


@pytest.mark.parametrize("p", [0.6, 0.95, 0.975])
def test_theorem_2_2_on_the_distribution(p: float) -> None:
    standard, _ = fit_population_svm(DIMENSION, 0.0, p=p, eta=ETA)
    assert accuracy(standard, 0.0, p=p, eta=ETA) > 0.99
    assert accuracy(standard, 2 * ETA, p=p, eta=ETA) < 0.01
    eta = 4 / math.sqrt(100 * DIMENSION)
    robust, _ = fit_population_svm(100 * DIMENSION, 2 * eta, p=p, eta=eta)
    assert robust[0] == 1
    assert not robust[1:].any()
    for eps in (0.0, 2 * eta, 0.999):
        assert accuracy(robust, eps, p=p, eta=eta) == pytest.approx(p)


def test_the_unit_norm_is_the_least_of_all_for_its_penalty() -> None:
    """On a large sample neither other lengths nor another direction do better."""
    eta = 4 / math.sqrt(10)
    weights, penalty = fit_population_svm(10, 0.0, p=P, eta=eta)
    assert np.linalg.norm(weights) == pytest.approx(1)
    sample = draw_examples(np.random.default_rng(3), 200_000, 10, p=P, eta=eta)
    here = loss(weights, sample, 0.0, penalty)
    for factor in (0.8, 1.25):
        assert loss(factor * weights, sample, 0.0, penalty) > here
    turned = weights.copy()
    turned[0] = 0.5
    assert loss(turned / np.linalg.norm(turned), sample, 0.0, penalty) > here


@pytest.mark.parametrize("penalty", [0.01, 0.3])
def test_without_an_adversary_it_is_liblinears_svm(signed: np.ndarray, penalty: float) -> None:
    weights, gap = fit_adversarial_svm(signed, 0.0, penalty)
    library = fit_standard_svm(signed, penalty)
    np.testing.assert_array_equal(fit_standard_svm(signed, penalty), library)
    assert 0 <= gap < 1e-5
    assert loss(weights, signed, 0.0, penalty) == pytest.approx(loss(library, signed, 0.0, penalty), abs=1e-4)
    # The loss is strongly convex with modulus `penalty`: |w - w'|^2 <= 2 (excess loss) / penalty.
    assert np.linalg.norm(weights - library) <= 2 * math.sqrt(2 * 1e-4 / penalty)


@pytest.mark.parametrize("eps", [0.05, 2 * ETA - 1e-9])
def test_the_duality_gap_proves_the_adversarial_svm(signed: np.ndarray, eps: float) -> None:
    penalty = 0.05
    weights, gap = fit_adversarial_svm(signed, eps, penalty)
    assert 0 <= gap < 1e-4
    least = loss(weights, signed, eps, penalty)
    generator = np.random.default_rng(4)
    for _ in range(50):
        assert loss(weights + 0.05 * generator.normal(size=len(weights)), signed, eps, penalty) > least


def test_adversarial_training_keeps_the_robust_feature_alone() -> None:
    """In a sample of n, a mean of y x_i exceeds eta by less than eps - eta, so the weights are exactly 0."""
    eta = 4 / math.sqrt(1600)
    sample = draw_examples(np.random.default_rng(5), 4000, 1600, p=P, eta=eta)
    _, penalty = fit_population_svm(1600, 2 * eta, p=P, eta=eta)
    weights, _ = fit_adversarial_svm(sample, 2 * eta, penalty)
    assert weights[0] > 0
    assert not weights[1:].any()


def test_with_a_free_norm_a_large_radius_leaves_nothing() -> None:
    """For eps > 2p - 1 the least adversarial loss is that of w = 0, which the text does not say."""
    sample = draw_examples(np.random.default_rng(6), 4000, 50, p=0.7, eta=0.05)
    learned, _ = fit_adversarial_svm(sample, 0.3, 0.01)
    assert learned[0] > 0
    learned, _ = fit_adversarial_svm(sample, 0.5, 0.01)
    assert not learned.any()


def test_a_measurement_without_such_an_svm_is_one_line() -> None:
    """Here the loss at unit norm falls along w, although eps is below eta."""
    with pytest.raises(UserError, match=r"^training_eps: no penalty gives the SVM at 0\.9 eta"):
        measure(
            MemoryRun(),
            seed=0,
            p=0.55,
            signal=4.0,
            dimension=400,
            examples=100,
            relative_eps=(0.0, 1.0),
            training_eps=0.9,
            mixtures=(0.5,),
            limits=(1.0,),
        )


def test_theorem_2_1_bounds_all_linear_classifiers() -> None:
    generator = np.random.default_rng(7)
    for eta in (0.02, 0.1, 0.4):
        for _ in range(200):
            weights = generator.normal(0.3, 1.0, 21) * generator.choice([0.05, 1.0, 20.0], 21)
            delta = 1 - accuracy(weights, 0.0, p=P, eta=eta)
            assert accuracy(weights, 2 * eta, p=P, eta=eta) <= robust_accuracy_bound(np.array(delta), P) + 1e-12


def test_theorem_2_1_bounds_classifiers_that_are_not_linear() -> None:
    """A forest, under the adversary of Appendix C that shifts x2 ... by 2 eta, within sampling error."""
    generator = np.random.default_rng(8)
    eta, count = 0.5, 20_000
    labels = generator.choice([-1, 1], 2000)
    forest = RandomForestClassifier(30, max_depth=5, random_state=0)
    forest.fit(draw_examples(generator, 2000, 10, p=0.8, eta=eta) * labels[:, None], labels)
    test_labels = generator.choice([-1, 1], count)
    test = draw_examples(generator, count, 10, p=0.8, eta=eta) * test_labels[:, None]
    shifted = test.copy()
    shifted[:, 1:] -= 2 * eta * test_labels[:, None]
    delta = (forest.predict(test) != test_labels).mean()
    robust = (forest.predict(shifted) == test_labels).mean()
    assert 0.01 < delta < 0.2
    # Both shares have standard errors of at most 1 / (2 sqrt(n)); the bound multiplies delta by 4.
    assert robust <= robust_accuracy_bound(np.array(delta), 0.8) + 5 * math.sqrt(1 + 16) / (2 * math.sqrt(count))


@pytest.mark.parametrize("limit", [0.0, 1.0, 3.0, 50.0])
def test_the_gated_classifier(limit: float) -> None:
    clean, robust = gated_accuracies(limit, 2.0, 0.8)
    generator = np.random.default_rng(9)
    first = np.where(generator.random(40_000) < 0.8, 1, -1)
    for mean, exact in ((2.0, clean), (-2.0, robust)):
        z = generator.normal(mean, 1.0, 40_000)
        assert (np.where(np.abs(z) > limit, z, first) > 0).mean() == pytest.approx(exact, abs=5 / 400)
    assert robust <= robust_accuracy_bound(np.array(1 - clean), 0.8) + 1e-12


def test_the_bound_is_tight_at_its_ends() -> None:
    """delta = 1 - p gives p, which x1 alone attains; delta = 0 gives 0."""
    assert robust_accuracy_bound(np.array([0.0, 0.05, 1.0]), P) == pytest.approx([0.0, P, 1.0])
    only_first = np.concatenate([[1.0], np.zeros(10)])
    assert accuracy(only_first, 0.9, p=P, eta=0.3) == pytest.approx(P)
