"""The plane of not-bugs-2019, Appendix D.10: what each loss learns, against what the docstring derives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from robustfeatures.theory.ignored_feature import (
    LOSSES,
    accuracies,
    fit,
    fit_largest_margin,
    least_margin,
    measure,
    sample,
)
from tests.runs import MemoryRun

LOW, HIGH, EPS = (0.3, 0.04), (0.6, 0.44), 0.28


@pytest.fixture(scope="module")
def signed() -> np.ndarray:
    return sample(np.random.default_rng(0), 2000, LOW, HIGH)


def test_the_radius_lies_where_the_docstring_wants_it() -> None:
    assert (LOW[0] ** 2 + LOW[1] ** 2) / (LOW[0] + LOW[1]) < EPS < LOW[0]
    assert (LOW[1] + HIGH[1]) / 2 <= EPS


def test_losses_of_known_margins() -> None:
    found = {name: loss(torch.tensor([-1.0, 0.0, 3.0], dtype=torch.float64)).tolist() for name, loss in LOSSES.items()}
    assert found == {
        "logistic": pytest.approx([np.log1p(np.e), np.log(2), np.log1p(np.exp(-3))]),
        "exponential": pytest.approx([np.e, 1, np.exp(-3)]),
        "squared": [4, 1, 4],
        "squared hinge": [4, 1, 0],
    }


def test_the_logistic_fit_is_scikit_learns(signed: np.ndarray) -> None:
    penalty = 1e-2
    labels = np.repeat([1, -1], len(signed))
    model = LogisticRegression(C=1 / (penalty * len(labels)), fit_intercept=False, tol=1e-10)
    model.fit(np.concatenate([signed, -signed]), labels)
    assert fit(signed, "logistic", 0.0, penalty) == pytest.approx(model.coef_[0], rel=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_standard_losses_are_accurate_and_not_robust(loss: str, signed: np.ndarray) -> None:
    weights = fit(signed, loss, 0.0, 1e-3)
    found = accuracies(weights, sample(np.random.default_rng(1), 20_000, LOW, HIGH), EPS)
    assert found["clean"] == 1
    assert found["linf"] < 1
    assert least_margin(weights, LOW, HIGH, EPS) < 0


@pytest.mark.parametrize("loss", LOSSES)
def test_robust_training_ignores_the_second_feature(loss: str, signed: np.ndarray) -> None:
    weights = fit(signed, loss, EPS, 1e-3)
    assert weights[0] > 0
    assert weights[1] == 0
    assert least_margin(weights, LOW, HIGH, EPS) == pytest.approx(LOW[0] - EPS)
    found = accuracies(weights, sample(np.random.default_rng(1), 20_000, LOW, HIGH), EPS)
    assert found == {"clean": 1, "linf": 1, "l2": 1}


def test_the_robust_fit_beats_a_grid(signed: np.ndarray) -> None:
    """No weights on a grid have a smaller robust logistic loss."""
    weights = fit(signed, "logistic", EPS, 1e-2)

    def objective(candidate: np.ndarray) -> float:
        worst = signed @ candidate - EPS * np.abs(candidate).sum()
        return float(np.logaddexp(0, -worst).mean() + 1e-2 * candidate @ candidate / 2)

    grid = np.stack(np.meshgrid(np.linspace(-1, 8, 46), np.linspace(-3, 3, 31)), axis=-1).reshape(-1, 2)
    assert objective(weights) < min(map(objective, grid))


def test_the_largest_margin_is_not_robust_in_linf() -> None:
    """It points at the corner that is nearest to the other class: exactly (low1, low2) if the sample has a corner."""
    corner = np.concatenate([[LOW], sample(np.random.default_rng(0), 200, LOW, HIGH)])
    weights = fit_largest_margin(corner)
    np.testing.assert_array_equal(fit_largest_margin(corner), weights)
    assert weights / weights[0] == pytest.approx(np.array(LOW) / LOW[0], rel=1e-4)
    assert least_margin(weights, LOW, HIGH, EPS) < 0
    # In L2 it is the most robust of all: its margin exceeds that of (1, 0).
    assert weights @ np.array(LOW) / np.linalg.norm(weights) > LOW[0]


def test_robust_accuracy_in_the_rows_is_that_of_the_distribution() -> None:
    """On 200 000 points of its own; the 20 000 of the rows have a standard error of at most 0.0035."""
    rows = measure(MemoryRun(), seed=0, low=LOW, high=HIGH, eps=EPS, penalty=1e-3, examples=30, test_examples=20_000)
    points = np.random.default_rng(9).uniform(LOW, HIGH, (200_000, 2))
    for row in rows:
        weights = np.array([row["weight_1"], row["weight_2"]])
        expected = (points @ weights > EPS * np.abs(weights).sum()).mean()
        assert row["linf"] == pytest.approx(expected, abs=5 * 0.0035), (row["training"], row["loss"])
