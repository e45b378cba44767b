"""Robust-feature leakage: the accuracy of a linear classifier that sees only robust linear features of D_rand.

Goh (2019), "Robust Feature Leakage", response 2 in "A Discussion of 'Adversarial Examples Are Not Bugs, They Are
Features'" (distill.pub, doi 10.23915/distill.00019.2). The features are the logits f_i(x) = w_i . x + b_i of a linear
network trained adversarially. The response asks for two things, computed here in closed form:

1. f_i is 0-robustly useful for class i. (The response asks for it for one of the classes, which is weaker.) Scale f_i
   and w_i so that f_i has mean 0 and standard deviation 1, and let y = 1 for class i and -1 for the others. Then
   E[inf over ||delta|| <= eps of y f_i(x + delta)] = E[y f_i(x)] - eps ||w_i|| > 0. Here all images have the same
   weight, so most have y = -1; the response does not give the weights.
2. The prediction is constant in the ball of radius eps round at least 80 % of the test images. For a linear network
   with prediction i, this is min over j of (f_i - f_j) / ||w_i - w_j|| > eps.

A linear classifier is trained on these features of a derived set and tested on the test split of D. Its accuracy above
chance has leaked through robust features. This is a lower bound, because nonlinear robust features may leak too.
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
MAX_ITERATIONS = 2000


def pixel_weights(network: Network, image_shape: tuple[int, int, int]) -> Floats:
    """Return the gradient of each logit of a linear network with respect to the pixels, (C, D).

    Raises:
        UserError: the network is not linear.
    """
    if not isinstance(network.features, nn.Flatten):
        raise UserError("architecture: robust linear features need the network 'linear'")
    scale = network.std.expand(1, *image_shape).reshape(1, -1)
    return (network.head.weight / scale).detach().cpu().double().numpy()


def robust_usefulness(features: Floats, labels: NDArray[np.int64], weights: Floats, eps: float) -> Floats:
    """Return E[inf y f_i(x + delta)] over the L2 ball of radius `eps`, (C,), in standard deviations of each feature.

    `features` (N, C) are linear functions of the pixels with gradients `weights` (C, D).
    """
    centred = features - features.mean(axis=0)
    signs = np.where(labels[:, None] == np.arange(features.shape[1]), 1.0, -1.0)
    unscaled: Floats = (signs * centred).mean(axis=0) - eps * np.linalg.norm(weights, axis=1)
    usefulness: Floats = unscaled / centred.std(axis=0)
    return usefulness


def stable_radius(features: Floats, weights: Floats) -> Floats:
    """Return the L2 distance (N,) from each point to the nearest other prediction; pixels are unbounded."""
    rows = np.arange(len(features))
    predicted = features.argmax(axis=1)
    gaps = features[rows, predicted][:, None] - features
    lengths = np.linalg.norm(weights[predicted][:, None, :] - weights, axis=2)
    gaps[rows, predicted], lengths[rows, predicted] = np.inf, 1.0
    radius: Floats = (gaps / lengths).min(axis=1)
    return radius


def linear_accuracy(train: tuple[Floats, NDArray[np.int64]], test: tuple[Floats, NDArray[np.int64]]) -> float:
    """Fit a logistic regression on `train` and return its accuracy on `test`, 0 to 1; both are (features, labels)."""
    classifier: Any = make_pipeline(StandardScaler(), LogisticRegression(C=np.inf, max_iter=MAX_ITERATIONS))
    return float(classifier.fit(*train).score(*test))


def measure(run: Run, *, eps: float) -> Sequence[Mapping[str, str | int | float]]:
    """Return one row per training set: the input "data" (D) and all other inputs except "model", the linear network.

    All columns are computed on the test split of D:

    trained_on: the training set of the classifier.
    accuracy: the accuracy of the classifier, 0 to 1.
    usefulness: sense 1 at radius `eps`, the smallest value of all features, in their standard deviations.
    stable: sense 2 at radius `eps`, the share of the images, 0 to 1.

    Raises:
        UserError: the network is not linear.
    """
    network = run.network("model")

    def compute_logits(role: str, split: str) -> tuple[Floats, NDArray[np.int64]]:
        data = run.dataset(role, split)
        logits = np.empty((len(data), data.num_classes))
        images = load_batches(data, run.device)
        for rows, batch in images.batches(torch.arange(len(data)), choose_batch_size(run.device, data.image_shape)):
            with torch.no_grad():
                logits[rows.cpu().numpy()] = network(batch).cpu().double().numpy()
        return logits, data.labels

    test = compute_logits("data", "test")
    weights = pixel_weights(network, run.dataset("data", "test").image_shape)
    usefulness = robust_usefulness(*test, weights, eps)
    stable = stable_radius(test[0], weights) > eps
    sets = [role for role in run.roles if role != "model"]
    rows: list[Mapping[str, str | int | float]] = []
    for role in sets:
        rows.append(
            {
                "trained_on": "D" if role == "data" else role,
                "accuracy": linear_accuracy(compute_logits(role, "train"), test),
                "usefulness": float(usefulness.min()),
                "stable": float(stable.mean()),
            }
        )
        run.progress(len(rows), len(sets))
    return rows
