"""Heads on frozen features: one step beside its formula, the theorem's clusters, and the digits end to end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from robustfeatures.errors import UserError
from robustfeatures.measurements.feature_heads import (
    FEATURES,
    K_CLASSES,
    TWO_CLASSES,
    Head,
    class_means,
    cosines,
    fit_standardisation,
    measure,
    sum_by_class,
    to_head_labels,
)
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.theory.feature_averaging import Task, gradient_descent
from tests.conftest import Digits
from tests.measurements.conftest import split_of
from tests.runs import MemoryRun

CPU = torch.device("cpu")
CLUSTERS, DIMENSION, POINTS = 10, 400, 500


def head(outputs: int, neurons: int, dimension: int, std: float) -> Head:
    return Head(outputs, neurons, dimension, std, torch.Generator().manual_seed(0), CPU)


def clusters() -> tuple[Tensor, Tensor, Tensor]:
    """Points round orthogonal centres of norm sqrt(d) with unit noise, their clusters, and the centres."""
    generator = torch.Generator().manual_seed(1)
    centres = DIMENSION**0.5 * torch.eye(CLUSTERS, DIMENSION)
    labels = torch.arange(POINTS) % CLUSTERS
    return centres[labels] + torch.randn((POINTS, DIMENSION), generator=generator), labels, centres


def test_features_are_centred_means_of_the_length_the_theory_has() -> None:
    generator = torch.Generator().manual_seed(0)
    raw = 5 + 0.3 * torch.randn((200, 7), generator=generator)
    mean, scale = fit_standardisation(raw)
    features = (raw - mean) * scale
    torch.testing.assert_close(features.mean(dim=0), torch.zeros(7), atol=1e-4, rtol=0)
    torch.testing.assert_close(features.square().sum(dim=1).mean(), torch.tensor(7.0))
    labels = torch.arange(200) % 4
    expected = np.stack([features[labels == label].numpy().mean(axis=0) for label in range(4)])
    torch.testing.assert_close(class_means(features, labels, 4), torch.from_numpy(expected))


def test_one_step_is_the_gradient_of_the_logistic_loss() -> None:
    """-d/dw of the mean of log(1 + exp(-y f)) is the mean of y sigma(-y f) (+-1/m) [<w, x> > 0] x."""
    points, labels, _ = clusters()
    sides = to_head_labels(labels, CLUSTERS, 2)
    two = head(2, 5, DIMENSION, 0.01)
    x, before = points.double().numpy(), two.weights.detach().double().numpy().copy()
    two.fit(points, sides, learning_rate=0.1, steps=1)
    y = np.where(sides.numpy() == 0, 1.0, -1.0)
    sign = np.repeat([1.0, -1.0], 5) / 5
    active = x @ before.T > 0
    f = np.maximum(x @ before.T, 0) @ sign
    pull = y / (1 + np.exp(y * f))
    expected = before + 0.1 * sign[:, None] * ((pull[:, None] * active).T @ x) / len(x)
    np.testing.assert_allclose(two.weights.detach().numpy(), expected, atol=1e-5)


def test_two_classes_average_and_ten_decouple() -> None:
    """The theorems' clusters. With two classes all clusters of a side weigh alike; with ten only the own one counts."""
    points, labels, centres = clusters()
    own = to_head_labels(torch.arange(CLUSTERS), CLUSTERS, 2)[None] == torch.arange(2).repeat_interleave(5)[:, None]
    two = head(2, 5, DIMENSION, 1e-5)
    two.fit(points, to_head_labels(labels, CLUSTERS, 2), learning_rate=0.01, steps=200)
    found = cosines(two.weights.detach(), centres)
    # Alike is 1 / sqrt(5) each; the theorem's ratio of any two is O(1), its other side o(1) of the own or negative.
    assert found[own].min() > 0.5 / 5**0.5
    assert (found[own].view(10, 5).amin(dim=1) > found[~own].view(10, 5).amax(dim=1)).all()
    assert found[~own].max() < 0.1
    ten = head(10, 5, DIMENSION, 1e-5)
    ten.fit(points, labels, learning_rate=0.01, steps=200)
    found = cosines(ten.weights.detach(), centres).view(10, 5, 10).mean(dim=1)
    assert found.diagonal().min() > 0.8
    assert (found - torch.diag(found.diagonal())).max() < 0.1


def test_lambda_is_that_of_the_theory() -> None:
    """Beside the toy model's own gradient descent, and beside the only solution of W - W_0 = sigma^T X for n < D."""
    generator = torch.Generator().manual_seed(4)
    noise = torch.randn((60, DIMENSION), generator=generator)
    labels = torch.arange(60) % 4
    points = noise.clone()
    points[torch.arange(60), labels] += DIMENSION**0.5
    two = head(2, 3, DIMENSION, 1e-3)
    start = two.weights.detach().clone()
    sigma = two.fit(points, to_head_labels(labels, 4, 2), learning_rate=0.01, steps=40)
    found = sum_by_class(sigma, labels, 4)
    task = Task("2-class", 4, 3, 2)
    (network,) = gradient_descent(noise, [task], [(start, torch.zeros(6))], learning_rate=0.01, steps=40)
    torch.testing.assert_close(found, network.coefficients, rtol=1e-3, atol=1e-6)
    solved = torch.linalg.lstsq(points.double().T, (two.weights.detach() - start).double().T).solution
    expected = torch.stack([solved[labels == label].sum(dim=0) for label in range(4)], dim=1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-6)


def test_an_odd_number_of_classes_has_no_two_sides(digits: Digits) -> None:
    odd = create("small-cnn", num_classes=9, image_shape=(1, 8, 8))
    with pytest.raises(UserError, match="9 classes cannot be divided into two equal sides"):
        measure(
            MemoryRun({"data": {"train": split_of(digits, slice(0, 100))}, "model": odd}),
            learning_rate=0.1,
            steps=1,
            initial_std=1e-5,
            precision="float32",
            seed=0,
        )


def test_the_rows_hold_two_heads_and_the_features(digits: Digits, network: Network) -> None:
    data = {"train": split_of(digits, slice(0, 1000)), "test": split_of(digits, slice(1000, 1200))}
    rows = measure(
        MemoryRun({"data": data, "model": network}),
        learning_rate=0.1,
        steps=200,
        initial_std=1e-5,
        precision="float32",
        seed=0,
    )
    matrices = {
        name: np.array([row["cosine"] for row in rows if row["head"] == name]).reshape(10, 10)
        for name in (FEATURES, TWO_CLASSES, K_CLASSES)
    }
    np.testing.assert_allclose(matrices[FEATURES], matrices[FEATURES].T, atol=1e-6)
    np.testing.assert_allclose(np.diag(matrices[FEATURES]), 1, atol=1e-6)
    side = np.arange(10) < 5
    same = side[:, None] == side
    lambdas = {
        name: np.array([row["coefficient"] for row in rows if row["head"] == name]).reshape(10, 10)
        for name in (TWO_CLASSES, K_CLASSES)
    }
    # By the signs of the residuals a step raises lambda of the own class or side and lowers the others. A neuron learns
    # nothing of a class on which it is off.
    assert (lambdas[TWO_CLASSES][same] >= 0).all()
    assert (lambdas[TWO_CLASSES][~same] < 0).all()
    assert (lambdas[TWO_CLASSES][same] > 1).mean() > 0.5
    assert (np.diag(lambdas[K_CLASSES]) > 1).all()
    assert (lambdas[K_CLASSES][~np.eye(10, dtype=bool)] < 0).all()
    assert matrices[TWO_CLASSES][same].mean() > matrices[TWO_CLASSES][~same].mean()
    assert (matrices[K_CLASSES].argmax(axis=1) == np.arange(10)).all()
    accuracy = {row["head"]: float(row["accuracy"]) for row in rows}
    with torch.no_grad():
        own = (network(digits.images[1000:1200]).argmax(dim=1) == digits.labels[1000:1200]).double().mean().item()
    # The network's own linear head reads the same features.
    assert accuracy[K_CLASSES] > own - 0.1
    assert accuracy[TWO_CLASSES] > 0.8


def test_features_are_those_of_training_images_and_accuracy_is_that_of_test_images(
    digits: Digits, network: Network
) -> None:
    """The test images have half the contrast and the label of the next digit, so nothing of them passes for train."""
    rows = slice(1000, 1200)
    test = split_of(digits, rows, (digits.labels[rows].numpy() + 1) % 10)
    data = {"train": split_of(digits, slice(0, 600)), "test": replace(test, images=0.5 * digits.images[rows].numpy())}
    found = measure(
        MemoryRun({"data": data, "model": network}),
        learning_rate=0.1,
        steps=100,
        initial_std=1e-5,
        precision="float32",
        seed=0,
    )
    with torch.no_grad():
        representations = network.representation(digits.images[:600]).numpy()
    labels = digits.labels[:600].numpy()
    means = np.stack([representations[labels == label].mean(axis=0) for label in range(10)])
    means -= representations.mean(axis=0)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    cosine = np.array([row["cosine"] for row in found if row["head"] == FEATURES]).reshape(10, 10)
    np.testing.assert_allclose(cosine, means @ means.T, atol=1e-3)
    # A head that knows the digits is wrong on these labels.
    (accuracy,) = {row["accuracy"] for row in found if row["head"] == K_CLASSES}
    assert accuracy < 0.5
