"""Performance correlation: how much of what a classifier gets right a simpler one explains.

Nakkiran et al. (2019), "SGD on Neural Networks Learns Functions of Increasing Complexity", Definition 1: for
predictions F, labels Y and the predictions L of the simple classifier, mu = I(F; Y) - I(F; Y | L). They have two
classes; two-pathways-2021, Section 4.3, takes several and the best simple classifier for a multi-class logistic
regression, and does not say in which unit. Here logarithms are to the base C, the number of classes: mu is at most 1,
and in bits for two classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma
from sklearn.linear_model import LogisticRegression

# Of the solver, L-BFGS, which needs some hundreds on flattened images.
MOST_ITERATIONS = 1000
# Where A N is larger, the bracket of the estimator is a difference of almost equal numbers, and the series is short; it
# is left off where its terms have fallen by a factor of e to this power.
SERIES_FROM = 3.0
LONGEST_DECAY = 50.0


def entropy(*columns: NDArray[np.int64]) -> float:
    """The joint entropy, in nats, of what the columns (N,), classes counted from 0, were drawn from.

    The estimator of Chao, Wang and Jost (2013), "Entropy and the species accumulation curve", Methods in Ecology and
    Evolution 4: with n_i the count of value i, and f_1 and f_2 of the values how many were seen once and twice,
    H = sum_i n_i / N [psi(N) - psi(n_i)] + f_1 / N (1 - A)^(1 - N) {-ln A - sum_(r < N) (1 - A)^r / r} with
    A = 2 f_2 / [(N - 1) f_1 + 2 f_2]. The second term stands for values that were not seen: with C^3 of them in a
    conditional mutual information it matters, and the corrections of Miller and Madow, of Grassberger, and of Chao and
    Shen leave a multiple of its bias.
    """
    joint = np.zeros_like(columns[0])
    for column in columns:
        joint = joint * (int(column.max()) + 1) + column
    counts = np.unique(joint, return_counts=True)[1]
    total = int(counts.sum())
    seen = float((counts / total * (digamma(total) - digamma(counts))).sum())
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    if once == 0 or total == 1:
        return seen
    coverage = 2 * twice / ((total - 1) * once + 2 * twice) if twice else 2 / ((total - 1) * (once - 1) + 2)
    return seen + once / total * _unseen(total, coverage)


def _unseen(total: int, coverage: float) -> float:
    """(1 - A)^(1 - N) {-ln A - sum_(r < N) (1 - A)^r / r}, which is sum_(j > 0) (1 - A)^j / (N - 1 + j)."""
    if coverage == 1:
        return 0.0
    if coverage * total > SERIES_FROM:
        ahead = np.arange(1.0, np.ceil(LONGEST_DECAY / coverage) + 1)
        return float((np.exp(ahead * np.log1p(-coverage)) / (total - 1 + ahead)).sum())
    steps = np.arange(1.0, total)
    left = -np.log(coverage) - (np.exp(steps * np.log1p(-coverage)) / steps).sum()
    return float(np.exp((1 - total) * np.log1p(-coverage)) * left)


def performance_correlation(
    predictions: NDArray[np.int64], labels: NDArray[np.int64], simple: NDArray[np.int64], num_classes: int
) -> float:
    """mu = I(F; Y) - I(F; Y | L) to the base `num_classes`, of predictions, labels and simple predictions (N,).

    The same as I(F; L) + I(Y; L) - I((F, Y); L). Estimates of what is 0 scatter round it.
    """
    f, y, simpler = predictions, labels, simple
    nats = (
        entropy(f)
        + entropy(y)
        + entropy(simpler)
        - entropy(f, y)
        - entropy(f, simpler)
        - entropy(y, simpler)
        + entropy(f, y, simpler)
    )
    return float(nats / np.log(num_classes))


def simple_predictions(
    images: NDArray[np.float32], labels: NDArray[np.int64], asked: NDArray[np.float32]
) -> NDArray[np.int64]:
    """The classes (M,) that a logistic regression fitted to images (N, C, H, W) and labels (N,) gives to others.

    scikit-learn's, on the pixels, with its standard penalty; nothing in it is drawn. In float64, where rounding,
    which depends on the number of threads, decides less of where the solver stops.
    """
    pixels = images.reshape(len(images), -1).astype(np.float64)
    fitted = LogisticRegression(max_iter=MOST_ITERATIONS).fit(pixels, labels)
    found: NDArray[np.int64] = fitted.predict(asked.reshape(len(asked), -1))
    return found
