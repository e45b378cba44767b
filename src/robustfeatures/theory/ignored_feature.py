"""Two features, one of which robust training ignores: not-bugs-2019, Section 4 and Appendix D.10, Figure 14.

Claim (Section 4): on some distributions in the plane, which many linear classifiers separate, every standard loss
learns an accurate classifier that is not robust. Robust training learns a classifier that is both: it ignores x2,
although x2 predicts the label.

The paper shows only a picture, so the distribution here is ours: y uniform in {-1, 1}, y x1 uniform in
[low1, high1] and y x2 uniform in [low2, high2], all positive, with the adversary's radius eps between
(low1^2 + low2^2) / (low1 + low2) and low1, and eps at least the mean of y x2. Then, for w = (w1, w2) >= 0:

- every w is accurate, since y w'x > 0;
- against the Linf ball of radius eps the least margin of w is w1 (low1 - eps) + w2 (low2 - eps), so w is robust exactly
  if w2 / w1 < (low1 - eps) / (eps - low2); w = (1, 0) is;
- the classifier with the largest Euclidean margin is (low1, low2), which is not robust. Gradient descent on a loss with
  an exponential tail converges to it (Soudry et al., 2018). So "any standard loss" also covers losses without a finite
  minimum;
- y x2 - eps has a mean of at most zero: x2 predicts the label, but not under attack. By Jensen's inequality no convex
  robust loss that falls with the margin gains from x2. Nor does the squared loss: at its minimum over w1 its slope in
  w2 is -2 E[1 - w1 (y x1 - eps)] E[y x2 - eps] >= 0.

The text around Figure 14 does not name the norm. For a Euclidean ball the claim cannot hold in the limit, since the
largest margin is then the most robust linear classifier. The figure marks a gap "> eps/2". Here the gap is low1 > eps
on either side of the boundary, as a ball of radius eps needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.svm import LinearSVC
from torch import Tensor

from robustfeatures.engine.autograd import with_gradient
from robustfeatures.engine.randomness import make_generator

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

Array = NDArray[np.float64]

# Losses of the margin.
LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic": lambda margins: torch.logaddexp(torch.zeros_like(margins), -margins),
    "exponential": lambda margins: (-margins).exp(),
    "squared": lambda margins: (1 - margins) ** 2,
    "squared hinge": lambda margins: (1 - margins).relu() ** 2,
}
# A penalty this large makes the soft margin a hard one.
HARD_MARGIN = 1e6


def sample(generator: np.random.Generator, count: int, low: Sequence[float], high: Sequence[float]) -> Array:
    """Draw y x (count, 2), uniform between `low` and `high` (2,)."""
    return generator.uniform(low, high, (count, 2))


def fit(signed: Array, loss: str, eps: float, penalty: float) -> Array:
    """Fit the weights (2,) that minimise the mean loss of the worst margins y w'x - eps |w|_1, plus penalty |w|^2 / 2.

    `signed` (n, 2) is y x. With w = a - b and a, b >= 0 the problem is smooth, so L-BFGS-B finds weights that
    are exactly zero.
    """
    examples = torch.from_numpy(np.concatenate([signed - eps, -signed - eps], axis=1))

    def objective(parts: Tensor) -> Tensor:
        return LOSSES[loss](examples @ parts).mean() + penalty / 2 * parts @ parts

    found = minimize(
        with_gradient(objective),
        np.full(4, 0.5),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * 4,
        options={"gtol": 1e-10},
    )
    weights: Array = found.x[:2] - found.x[2:]
    return weights


def fit_largest_margin(signed: Array) -> Array:
    """Fit the weights (2,) with the largest Euclidean margin on separable examples y x (n, 2)."""
    doubled = np.concatenate([signed, -signed])
    labels = np.repeat([1, -1], len(signed))
    # liblinear draws the order of its steps.
    machine = LinearSVC(loss="hinge", C=HARD_MARGIN, fit_intercept=False, max_iter=1_000_000, tol=1e-8, random_state=0)
    weights: Array = machine.fit(doubled, labels).coef_[0]
    return weights


def least_margin(weights: Array, low: Sequence[float], high: Sequence[float], eps: float) -> float:
    """The minimum of y w'x / |w|_1 - eps over the distribution: positive if no Linf attack of radius eps succeeds."""
    corner = np.where(weights > 0, low, high)
    return float(weights @ corner / np.abs(weights).sum() - eps)


def accuracies(weights: Array, signed: Array, eps: float) -> dict[str, float]:
    """Accuracies on examples y x (n, 2), shares: clean, and under the best Linf and L2 attacks of radius eps."""
    margins = signed @ weights
    lengths = {"clean": 0.0, "linf": float(np.abs(weights).sum()), "l2": float(np.linalg.norm(weights))}
    return {name: float((margins > eps * length).mean()) for name, length in lengths.items()}


def measure(
    run: Run,
    *,
    seed: int,
    low: Sequence[float],
    high: Sequence[float],
    eps: float,
    penalty: float,
    examples: int,
    test_examples: int,
) -> list[dict[str, str | int | float]]:
    """One row per loss and training, "standard" or "robust", and one for the largest margin.

    Columns training, loss, weight_1, weight_2 (of length 1), least_margin, clean, linf, l2 (accuracies, shares of
    test examples, attacked with radius eps).
    """
    signed = sample(make_generator(seed, "train"), examples, low, high)
    test = sample(make_generator(seed, "test"), test_examples, low, high)
    found = {("standard", "largest margin"): fit_largest_margin(signed)}
    for loss in LOSSES:
        found["standard", loss] = fit(signed, loss, 0.0, penalty)
        found["robust", loss] = fit(signed, loss, eps, penalty)
    rows: list[dict[str, str | int | float]] = []
    for (training, loss), weights in found.items():
        direction = weights / np.linalg.norm(weights)
        rows.append(
            {
                "training": training,
                "loss": loss,
                "weight_1": float(direction[0]),
                "weight_2": float(direction[1]),
                "least_margin": least_margin(weights, low, high, eps),
                **accuracies(weights, test, eps),
            }
        )
    return rows
