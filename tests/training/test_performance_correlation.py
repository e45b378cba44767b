"""Estimates of entropy and performance correlation where the answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from robustfeatures.measurements.logistic_regression import predict_by_logistic_regression as simple
from robustfeatures.training.performance_correlation import _unseen_entropy, entropy, performance_correlation
from tests.conftest import Digits

C = 10


def noisy(accuracy: float) -> NDArray[np.float64]:
    """P(prediction | class): right with this probability, otherwise any other class."""
    channel = np.full((C, C), (1 - accuracy) / (C - 1))
    np.fill_diagonal(channel, accuracy)
    return channel


def exact(joint: NDArray[np.float64]) -> float:
    """mu of a distribution over (F, Y, L), by its definition: I(F; Y) - sum_l P(l) I(F; Y | L = l), to the base C."""

    def information(table: NDArray[np.float64]) -> float:
        independent = table.sum(1, keepdims=True) * table.sum(0, keepdims=True)
        there = table > 0
        return float((table[there] * np.log(table[there] / independent[there])).sum())

    conditional = sum(
        share * information(joint[:, :, simpler] / share)
        for simpler, share in enumerate(joint.sum((0, 1)))
        if share > 0
    )
    return (information(joint.sum(2)) - conditional) / math.log(len(joint))


def mix(network: float, simpler: float, explained: float) -> NDArray[np.float64]:
    """F repeats L with probability `explained`, and otherwise is right with probability `network`."""
    alone = np.einsum("y,yf,yl->fyl", np.full(C, 1 / C), noisy(network), noisy(simpler))
    repeated = np.einsum("y,yl,lf->fyl", np.full(C, 1 / C), noisy(simpler), np.eye(C))
    return (1 - explained) * alone + explained * repeated


CASES = [(0.9, 0.6, 0.0), (0.5, 0.4, 0.0), (0.8, 0.6, 0.7), (0.2, 0.3, 0.3), (0.1, 0.1, 0.0)]


def estimates(joint: NDArray[np.float64], count: int, repeats: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(0)
    drawn = rng.choice(joint.size, size=(repeats, count), p=joint.ravel() / joint.sum())
    return np.array([performance_correlation(*np.unravel_index(one, joint.shape), C) for one in drawn])


def plug_in(*columns: NDArray[np.int64]) -> float:
    shares = np.unique(np.stack(columns, 1), axis=0, return_counts=True)[1] / len(columns[0])
    return float(-(shares * np.log(shares)).sum())


@pytest.mark.parametrize("case", CASES)
def test_mean_of_estimates_is_the_known_value(case: tuple[float, float, float]) -> None:
    """With five observations to each of the C^3 cells; the mean of 20 scatters by its standard error."""
    joint = mix(*case)
    found = estimates(joint, 5000, 20)
    assert found.mean() == pytest.approx(exact(joint), abs=4 * found.std() / math.sqrt(20) + 0.003)


@pytest.mark.parametrize("case", CASES)
def test_bias_is_small_where_most_cells_are_empty(
    case: tuple[float, float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """270 observations of 1000 cells, as on the validation split of the digits."""
    joint = mix(*case)
    corrected = abs(estimates(joint, 270, 20).mean() - exact(joint))
    monkeypatch.setattr("robustfeatures.training.performance_correlation.entropy", plug_in)
    assert corrected < 0.1
    assert corrected < abs(estimates(joint, 270, 20).mean() - exact(joint)) + 0.05


def test_known_answers() -> None:
    """Both right: 1; independent of the simple one: 0; exclusive or, which neither knows alone: -1 bit."""
    rng = np.random.default_rng(0)
    labels, other = rng.integers(C, size=(2, 20_000))
    assert performance_correlation(labels, labels, labels, C) == pytest.approx(1, abs=0.005)
    assert performance_correlation(labels, labels, other, C) == pytest.approx(0, abs=0.005)
    one, two = rng.integers(2, size=(2, 20_000))
    assert performance_correlation(one, one ^ two, two, 2) == pytest.approx(-1, abs=0.005)


def test_entropy_of_a_few_draws_of_many_values() -> None:
    """For 100 draws of 50 equal values the plug-in lacks a fifth of a nat; the estimate lacks a quarter of that."""
    rng = np.random.default_rng(0)
    draws = rng.integers(50, size=(200, 100))
    assert np.mean([plug_in(one) for one in draws]) < math.log(50) - 0.2
    assert np.mean([entropy(one) for one in draws]) == pytest.approx(math.log(50), abs=0.05)


@pytest.mark.parametrize("total", [5, 270, 2000])
@pytest.mark.parametrize("share", [0.05, 0.5, 2.9, 3.1, 4.9])
def test_what_is_not_seen_is_its_series(total: int, share: float) -> None:
    coverage = share / total
    ahead = np.arange(1.0, 40 / coverage)
    series = float(((1 - coverage) ** ahead / (total - 1 + ahead)).sum())
    assert _unseen_entropy(total, coverage) == pytest.approx(series, rel=1e-9)


def test_the_simple_classifier_is_a_logistic_regression(digits: Digits) -> None:
    """It learns digits far better than chance, twice the same, whatever was drawn before."""
    images, labels = digits.images.numpy(), digits.labels.numpy()
    found = simple(images[:1000], labels[:1000], images[1000:])
    assert (found == labels[1000:]).mean() > 0.85
    np.random.seed(1)  # what the generator that libraries share holds must not matter
    assert (simple(images[:1000], labels[:1000], images[1000:]) == found).all()


def test_the_simple_classifier_has_the_least_loss(digits: Digits) -> None:
    """Its predictions are those of the weights that torch's L-BFGS finds, for the loss in scikit-learn's user guide."""
    pixels = digits.images.double().flatten(1)
    weights, intercept = torch.zeros(10, 64, dtype=torch.float64), torch.zeros(10, dtype=torch.float64)
    parameters = [weights.requires_grad_(), intercept.requires_grad_()]
    optimiser = torch.optim.LBFGS(parameters, max_iter=5000, tolerance_grad=1e-6, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        logits = pixels[:1000] @ weights.T + intercept
        loss = cross_entropy(logits, digits.labels[:1000], reduction="sum") + weights.square().sum() / 2
        loss.backward()
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    expected = (pixels[1000:] @ weights.T + intercept).argmax(1).numpy()
    found = simple(digits.images[:1000].numpy(), digits.labels[:1000].numpy(), digits.images[1000:].numpy())
    assert (found == expected).all()
