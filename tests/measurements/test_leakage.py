"""Robust linear features: closed forms against the worst perturbation itself, and classifiers of known accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from robustfeatures.engine.batches import InMemory
from robustfeatures.errors import UserError
from robustfeatures.measurements.leakage import (
    linear_accuracy,
    measure,
    pixel_weights,
    robust_usefulness,
    stable_radius,
)
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Training
from tests.conftest import Digits
from tests.measurements.conftest import split_of
from tests.runs import MemoryRun

EPS = 0.3


@pytest.fixture(scope="module")
def linear(digits: Digits) -> Network:
    torch.manual_seed(0)
    network = create("linear", num_classes=10, image_shape=(1, 8, 8))
    network.set_normalisation(digits.images.mean(), digits.images.std())
    settings = Training(epochs=4, batch_size=64, learning_rate=0.05)
    train(network, InMemory(digits.images[:1000]), digits.labels[:1000], settings, seed=0)
    return network.eval()


def logits(network: Network, images: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return network(images).double().numpy()


def test_the_weights_are_the_gradients_by_pixel(linear: Network, digits: Digits) -> None:
    image = digits.images[:1].requires_grad_(True)
    gradients = [torch.autograd.grad(linear(image)[0, index], image)[0].flatten() for index in range(10)]
    np.testing.assert_allclose(pixel_weights(linear, (1, 8, 8)), torch.stack(gradients).numpy(), rtol=1e-5, atol=1e-7)


def test_robust_usefulness_is_that_of_the_worst_perturbation(linear: Network, digits: Digits) -> None:
    """A linear feature falls most along its gradient, so each image moves there and the feature is computed again."""
    images, labels = digits.images[1000:1300], digits.labels[1000:1300]
    features, weights = logits(linear, images), pixel_weights(linear, (1, 8, 8))
    found = robust_usefulness(features, labels.numpy(), weights, EPS)
    for index in range(10):
        signs = torch.where(labels == index, 1.0, -1.0)
        direction = torch.from_numpy(weights[index] / np.linalg.norm(weights[index])).float().view(1, 1, 8, 8)
        moved = logits(linear, images - EPS * signs.view(-1, 1, 1, 1) * direction)[:, index]
        mean, std = features[:, index].mean(), features[:, index].std()
        assert found[index] == pytest.approx((signs.numpy() * (moved - mean) / std).mean(), abs=1e-4)
    assert (robust_usefulness(features, labels.numpy(), weights, 100.0) < 0).all()


def test_the_prediction_changes_just_beyond_the_stable_radius(linear: Network, digits: Digits) -> None:
    images = digits.images[1000:1100]
    features, weights = logits(linear, images), pixel_weights(linear, (1, 8, 8))
    radius = stable_radius(features, weights)
    predicted = features.argmax(axis=1)
    generator = np.random.default_rng(0)
    for row in range(len(images)):
        rest = [other for other in range(10) if other != predicted[row]]
        directions = np.array([weights[other] - weights[predicted[row]] for other in rest])
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        random = generator.normal(size=(50, 64))
        random /= np.linalg.norm(random, axis=1, keepdims=True)

        def classes(length: float, along: np.ndarray, row: int = row) -> np.ndarray:
            return logits(linear, images[row] + torch.from_numpy(length * along).float().view(-1, 1, 8, 8)).argmax(1)

        assert (classes(0.999 * radius[row], np.concatenate([directions, random])) == predicted[row]).all()
        assert (classes(1.001 * radius[row], directions) != predicted[row]).any()


def test_accuracy_of_two_normal_classes() -> None:
    """Unit normals a distance d apart are told apart with probability Phi(d / 2)."""
    generator = np.random.default_rng(0)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = generator.integers(2, size=count)
        return generator.normal(size=(count, 3)) + 2.0 * labels[:, None] * np.array([1, 0, 0]), labels

    expected = stats.norm.cdf(1.0)
    # Five standard deviations of the test sample; what training on 5000 points adds is less than a tenth of one.
    allowed = 5 * np.sqrt(expected * (1 - expected) / 20_000)
    assert linear_accuracy(draw(5000), draw(20_000)) == pytest.approx(expected, abs=allowed)


def test_the_regression_has_no_penalty_on_large_weights() -> None:
    """The sign of x2 - x1 is the class, but so small a difference needs large weights. x1 alone errs on every third."""
    labels = np.repeat([0, 1], 200)
    signs = 2 * labels - 1
    first = np.random.default_rng(0).normal(size=400) + 0.5 * signs
    assert 0.5 < ((first > 0) == labels).mean() < 0.8
    features = np.column_stack([first, first + 0.025 * signs])
    assert linear_accuracy((features, labels), (features, labels)) == 1.0


def test_leakage_of_a_set_with_and_without_it(linear: Network, digits: Digits) -> None:
    """D itself gives what the linear network knows; random labels give chance, a cyclic shift less."""
    rows, left = slice(0, 1000), slice(1000, 1797)
    labels = digits.labels[rows].numpy()
    random = np.random.default_rng(0).integers(10, size=1000)
    inputs = {
        "data": {"train": split_of(digits, rows), "test": split_of(digits, left)},
        "model": linear,
        "random": {"train": split_of(digits, rows, random)},
        "shifted": {"train": split_of(digits, rows, (labels + 1) % 10)},
    }
    found = {row["trained_on"]: row for row in measure(MemoryRun(inputs), eps=EPS)}
    own = float((logits(linear, digits.images[left]).argmax(1) == digits.labels[left].numpy()).mean())
    assert found["D"]["accuracy"] > own - 0.05 > 0.7
    # A tenth is right by chance, but a classifier of random labels may favour a class.
    assert float(found["random"]["accuracy"]) < own / 2
    assert float(found["shifted"]["accuracy"]) < 0.1
    assert len({(row["usefulness"], row["stable"]) for row in found.values()}) == 1
    features, weights = logits(linear, digits.images[left]), pixel_weights(linear, (1, 8, 8))
    useful = robust_usefulness(features, digits.labels[left].numpy(), weights, EPS)
    assert useful.min() < useful.max() - 0.01
    assert found["D"]["usefulness"] == pytest.approx(useful.min(), abs=1e-6)
    radius = stable_radius(features, weights)
    assert found["D"]["stable"] == pytest.approx((radius > EPS).mean(), abs=0.002)


def test_features_that_are_not_linear_are_refused(network: Network, digits: Digits) -> None:
    inputs = {"data": {"test": split_of(digits, slice(0, 20))}, "model": network}
    with pytest.raises(UserError, match=r"^architecture: robust linear features need the network 'linear'$"):
        measure(MemoryRun(inputs), eps=EPS)
