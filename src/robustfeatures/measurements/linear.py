"""Two-class linear classifiers against a Linf adversary whose images stay in [0, 1]: closed forms and exact solutions.

With labels y = +-1 the margin of an image x is y (w x + b). The adversary moves each pixel on its own, so its best
answer is known: a pixel for which y w_i > 0 falls by min(eps, x_i), any other rises by min(eps, 1 - x_i).
at-odds-2019, Appendix E, writes y (w x + b) - eps |w|_1, which is the same where no pixel is within eps of 0 or 1; most
pixels of MNIST are at 0, and an image below 0 is none.

Split into w = u - v with u, v >= 0, the margin in the worst case is linear in (u, v, b). So adversarial training of a
linear classifier is logistic regression with coefficients that may not be negative: smooth, convex, and solved exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

if TYPE_CHECKING:
    from robustfeatures.models.network import Network

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Linear:
    """The class +1 for w x + b > 0: `weights` (D,) over pixels in [0, 1], and `bias`."""

    weights: Array
    bias: float


@dataclass(frozen=True)
class Problem:
    """Training images (N, D) in [0, 1] with labels +-1 (N,), the radius, and what holds the weights back.

    Minimised is the mean logistic loss in the worst case plus decay / 4 times the squared length of the classifier as a
    function of (x - mean) / std, bias included. So does the network `linear` with two classes and that weight decay:
    the best rows of its head are each other's opposites, half the classifier each.
    """

    images: Array
    labels: Array
    eps: float
    decay: float
    mean: Array
    std: Array

    def objective(self, classifier: Linear) -> float:
        """The value of a classifier, which training makes as small as it can."""
        margins = worst_margins(classifier, self.images, self.labels, self.eps)
        inner = classifier.weights * self.std
        length = float(inner @ inner) + (classifier.bias + float(classifier.weights @ self.mean)) ** 2
        return float(np.logaddexp(0.0, -margins).mean()) + self.decay / 4 * length


def of_network(network: Network) -> Linear:
    """A network `linear` with two classes as one classifier of pixels; its second class is +1."""
    head = network.head
    inner = (head.weight[1] - head.weight[0]).detach().double().cpu().numpy()
    bias = float((head.bias[1] - head.bias[0]).detach())
    channels = network.mean.numel()
    per_pixel = len(inner) // channels
    mean, std = (np.repeat(values.double().cpu().numpy().ravel(), per_pixel) for values in (network.mean, network.std))
    weights = inner / std
    return Linear(weights, bias - float(weights @ mean))


def worst_margins(classifier: Linear, images: Array, labels: Array, eps: float) -> Array:
    """The least y (w x + b) (N,) over the Linf ball of radius `eps` and [0, 1]; 0 is no attack."""
    margins: Array = labels * (images @ classifier.weights + classifier.bias)
    fall, rise = np.minimum(eps, images), np.minimum(eps, 1 - images)
    size = np.abs(classifier.weights)
    # Where y w > 0 falling hurts; for one label these are the positive weights, for the other the negative ones.
    positive = classifier.weights > 0
    for label in (-1.0, 1.0):
        rows = labels == label
        falling = positive if label > 0 else ~positive
        margins[rows] -= fall[rows] @ (size * falling) + rise[rows] @ (size * ~falling)
    return margins


def accuracy(classifier: Linear, images: Array, labels: Array, eps: float) -> float:
    """The share of images, 0 to 1, that are classified right whatever the adversary does; exact."""
    return float((worst_margins(classifier, images, labels, eps) > 0).mean())


def correlations(images: Array, labels: Array) -> Array:
    """|E[y x_i]| (D,): the usefulness of each pixel (at-odds-2019, Appendix E)."""
    return np.abs(labels @ images) / len(images)


def solution(problem: Problem) -> Linear:
    """The classifier of least objective, by L-BFGS-B over (u, v, bias)."""
    images, labels = problem.images, problem.labels
    fall, rise = np.minimum(problem.eps, images), np.minimum(problem.eps, 1 - images)
    signed = labels[:, None] * images
    up = labels[:, None] > 0
    features = np.concatenate([signed - np.where(up, fall, rise), -signed - np.where(up, rise, fall)], axis=1)
    count, pixels = images.shape

    def value_and_gradient(parameters: Array) -> tuple[float, Array]:
        halves, bias = parameters[:-1], parameters[-1]
        weights = halves[:pixels] - halves[pixels:]
        margins = features @ halves + labels * bias
        push = -expit(-margins) / count
        shifted = bias + weights @ problem.mean
        inner = weights * problem.std
        value = np.logaddexp(0.0, -margins).mean() + problem.decay / 4 * (inner @ inner + shifted**2)
        slope = problem.decay / 2 * (inner * problem.std + shifted * problem.mean)
        gradient = np.concatenate([push @ features, [push @ labels + problem.decay / 2 * shifted]])
        gradient[:pixels] += slope
        gradient[pixels:-1] -= slope
        return float(value), gradient

    found = minimize(
        value_and_gradient,
        np.zeros(2 * pixels + 1),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * (2 * pixels) + [(None, None)],
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-13, "gtol": 1e-8, "maxcor": 30},
    )
    return Linear(found.x[:pixels] - found.x[pixels:-1], float(found.x[-1]))
