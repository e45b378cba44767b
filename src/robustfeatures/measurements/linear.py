"""Two-class linear classifiers against a Linf adversary: closed forms and exact solutions.

With labels y = +-1 the margin of an image x is y (w x + b). The adversary changes each pixel independently, so the
worst case is known. In at-odds-2019, Appendix E, it is y (w x + b) - eps |w|_1: every pixel moves by eps and may leave
[0, 1]. If the adversary is clipped to [0, 1], a pixel with y w_i > 0 falls by min(eps, x_i), and any other pixel rises
by min(eps, 1 - x_i). On MNIST the two differ, because most pixels are 0.

With w = u - v and u, v >= 0, the worst-case margin is linear in (u, v, b). So adversarial training of a linear
classifier is a logistic regression with coefficients >= 0. This problem is smooth and convex, and is solved exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from robustfeatures.engine.autograd import with_gradient

if TYPE_CHECKING:
    from robustfeatures.models.network import Network

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LinearClassifier:
    """A classifier that predicts +1 if w x + b > 0: `weights` (D,) of the pixels in [0, 1], and `bias`."""

    weights: Array
    bias: float


@dataclass(frozen=True)
class TrainingProblem:
    """Training images (N, D) in [0, 1] with labels +-1 (N,), the adversary (`eps`, `clipped`), and the weight decay.

    The objective is the mean worst-case logistic loss plus decay / 4 times the squared length of (weights, bias), where
    the weights act on (x - mean) / std. The network `linear` with two classes and the same weight decay minimises the
    same objective: at the optimum the two rows of its head are w / 2 and -w / 2.
    """

    images: Array
    labels: Array
    eps: float
    decay: float
    mean: Array
    std: Array
    clipped: bool = True

    def objective(self, classifier: LinearClassifier) -> float:
        """Return the value of the objective, which training minimises."""
        margins = worst_case_margins(classifier, self.images, self.labels, self.eps, clipped=self.clipped)
        inner = classifier.weights * self.std
        length = float(inner @ inner) + (classifier.bias + float(classifier.weights @ self.mean)) ** 2
        return float(np.logaddexp(0.0, -margins).mean()) + self.decay / 4 * length


def to_linear_classifier(network: Network) -> LinearClassifier:
    """Convert a network `linear` with two classes to a classifier of pixels; the second class becomes +1."""
    head = network.head
    inner = (head.weight[1] - head.weight[0]).detach().double().cpu().numpy()
    bias = float((head.bias[1] - head.bias[0]).detach())
    channels = network.mean.numel()
    per_pixel = len(inner) // channels
    mean, std = (np.repeat(values.double().cpu().numpy().ravel(), per_pixel) for values in (network.mean, network.std))
    weights = inner / std
    return LinearClassifier(weights, bias - float(weights @ mean))


def _largest_moves(images: Array, eps: float, *, clipped: bool) -> tuple[Array, Array]:
    """Return how far each pixel may fall and how far it may rise, both (N, D)."""
    if not clipped:
        return np.full_like(images, eps), np.full_like(images, eps)
    return np.minimum(eps, images), np.minimum(eps, 1 - images)


def worst_case_margins(
    classifier: LinearClassifier, images: Array, labels: Array, eps: float, *, clipped: bool = True
) -> Array:
    """Return the minimum of y (w x + b), (N,), over the Linf ball of radius `eps`; `eps` 0 is no attack.

    With `clipped` the minimum is over the part of the ball in [0, 1].
    """
    margins: Array = labels * (images @ classifier.weights + classifier.bias)
    fall, rise = _largest_moves(images, eps, clipped=clipped)
    magnitudes = np.abs(classifier.weights)
    # The margin falls with a pixel if y w > 0: positive weights for the label +1, negative weights for the label -1.
    positive = classifier.weights > 0
    for label in (-1.0, 1.0):
        rows = labels == label
        falling = positive if label > 0 else ~positive
        margins[rows] -= fall[rows] @ (magnitudes * falling) + rise[rows] @ (magnitudes * ~falling)
    return margins


def accuracy(classifier: LinearClassifier, images: Array, labels: Array, eps: float, *, clipped: bool = True) -> float:
    """Return the exact robust accuracy, 0 to 1."""
    return float((worst_case_margins(classifier, images, labels, eps, clipped=clipped) > 0).mean())


def correlations(images: Array, labels: Array) -> Array:
    """Return |E[y x_i]|, (D,), the usefulness of each pixel (at-odds-2019, Appendix E)."""
    return np.abs(labels @ images) / len(images)


def solve(problem: TrainingProblem) -> LinearClassifier:
    """Minimise the objective by L-BFGS-B over (u, v, bias)."""
    images, labels = problem.images, problem.labels
    fall, rise = _largest_moves(images, problem.eps, clipped=problem.clipped)
    signed = labels[:, None] * images
    up = labels[:, None] > 0
    features = np.concatenate([signed - np.where(up, fall, rise), -signed - np.where(up, rise, fall)], axis=1)
    examples, signs, mean, std = map(torch.from_numpy, (features, labels, problem.mean, problem.std))
    pixels = images.shape[1]

    def objective(parameters: Tensor) -> Tensor:
        u_and_v, bias = parameters[:-1], parameters[-1]
        weights = u_and_v[:pixels] - u_and_v[pixels:]
        margins = examples @ u_and_v + signs * bias
        losses = torch.logaddexp(torch.zeros_like(margins), -margins)
        inner, shifted = weights * std, bias + weights @ mean
        return losses.mean() + problem.decay / 4 * (inner @ inner + shifted**2)

    result = minimize(
        with_gradient(objective),
        np.zeros(2 * pixels + 1),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * (2 * pixels) + [(None, None)],
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-13, "gtol": 1e-8, "maxcor": 30},
    )
    return LinearClassifier(result.x[:pixels] - result.x[pixels:-1], float(result.x[-1]))
