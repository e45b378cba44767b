"""Robust-feature leakage: what a linear classifier learns from D_rand when it sees robust linear features alone.

Goh (2019), "Robust Feature Leakage", response 2 in "A Discussion of 'Adversarial Examples Are Not Bugs, They Are
Features'" (distill.pub, doi 10.23915/distill.00019.2). The features are the logits f_i(x) = w_i . x + b_i of a linear
network trained adversarially. That they are robust is computed in closed form, in the two senses given there:

1. f_i is 0-robustly useful for class i: with f_i of mean 0 and standard deviation 1, w_i scaled alike, and y = 1 for
   class i, -1 for the others, E[inf over ||delta|| <= eps of y f_i(x + delta)] = E[y f_i(x)] - eps ||w_i|| > 0.
   Classes count as often as they are, so that most images have y = -1; the text does not say how it weighs them.
2. The network's prediction is constant in the ball of radius eps round at least 80 % of the test images, which for a
   linear network is min over j of (f_i - f_j) / ||w_i - w_j|| > eps, i being the prediction.

A linear classifier is then trained on these features of a derived set, and tested on those of the test split of D. What
it gets right above chance has leaked through robust features; it is a lower bound, for robust features that are not
linear may leak too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from robustfeatures.engine.batches import choose_batch_size, load_batches
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run
    from robustfeatures.models.network import Network

Floats = NDArray[np.float64]
MOST_ITERATIONS = 2000


def pixel_weights(network: Network, image_shape: tuple[int, int, int]) -> Floats:
    """The gradient of each logit with respect to the pixels, (C, D), of a linear network.

    Raises:
        UserError: the network is not linear.
    """
    if not isinstance(network.features, nn.Flatten):
        raise UserError("architecture: robust linear features need the network 'linear'")
    scale = network.std.expand(1, *image_shape).reshape(1, -1)
    return (network.head.weight / scale).detach().cpu().double().numpy()


def robust_usefulness(features: Floats, labels: NDArray[np.int64], weights: Floats, eps: float) -> Floats:
    """E[inf y f_i(x + delta)] over the L2 ball of radius `eps`, (C,), of features of mean 0 and standard deviation 1.

    `features` (N, C) are linear in the pixels with gradients `weights` (C, D); they are scaled here.
    """
    centred = features - features.mean(axis=0)
    signs = np.where(labels[:, None] == np.arange(features.shape[1]), 1.0, -1.0)
    useful: Floats = (signs * centred).mean(axis=0) - eps * np.linalg.norm(weights, axis=1)
    scaled: Floats = useful / centred.std(axis=0)
    return scaled


def stable_radius(features: Floats, weights: Floats) -> Floats:
    """The L2 distance (N,) from each point to the nearest change of the prediction, where pixels have no bounds."""
    rows = np.arange(len(features))
    predicted = features.argmax(axis=1)
    gaps = features[rows, predicted][:, None] - features
    lengths = np.linalg.norm(weights[predicted][:, None, :] - weights, axis=2)
    gaps[rows, predicted], lengths[rows, predicted] = np.inf, 1.0
    radius: Floats = (gaps / lengths).min(axis=1)
    return radius


def linear_accuracy(train: tuple[Floats, NDArray[np.int64]], test: tuple[Floats, NDArray[np.int64]]) -> float:
    """The share in [0, 1] of `test` that logistic regression on `train` gets right; both are features and labels."""
    classifier: Any = make_pipeline(StandardScaler(), LogisticRegression(C=np.inf, max_iter=MOST_ITERATIONS))
    return float(classifier.fit(*train).score(*test))


def measure(run: Run, *, eps: float) -> Sequence[Mapping[str, str | int | float]]:
    """One row per training set: D (the input "data") and every other input but "model", the linear network.

    Columns: trained_on, accuracy (a share, on the test split of D); and, of the network at radius `eps` on the test
    split of D, usefulness (sense 1, the least of the features, in their standard deviations) and stable (sense 2,
    a share of the images).

    Raises:
        UserError: the network is not linear.
    """
    network = run.network("model")

    def logits(role: str, split: str) -> tuple[Floats, NDArray[np.int64]]:
        data = run.dataset(role, split)
        found = np.empty((len(data), data.num_classes))
        images = load_batches(data, run.device)
        for rows, batch in images.batches(torch.arange(len(data)), choose_batch_size(run.device, data.image_shape)):
            with torch.no_grad():
                found[rows.cpu().numpy()] = network(batch).cpu().double().numpy()
        return found, data.labels

    test = logits("data", "test")
    weights = pixel_weights(network, run.dataset("data", "test").image_shape)
    useful = robust_usefulness(*test, weights, eps)
    stable = stable_radius(test[0], weights) > eps
    sets = [role for role in run.roles if role != "model"]
    rows: list[Mapping[str, str | int | float]] = []
    for role in sets:
        rows.append(
            {
                "trained_on": "D" if role == "data" else role,
                "accuracy": linear_accuracy(logits(role, "train"), test),
                "usefulness": float(useful.min()),
                "stable": float(stable.mean()),
            }
        )
        run.progress(len(rows), len(sets))
    return rows
