"""Performance correlation: the part of a classifier's performance that a simpler classifier explains.

Nakkiran et al. (2019), "SGD on Neural Networks Learns Functions of Increasing Complexity", Definition 1: for
predictions F, labels Y and the predictions L of the simple classifier, mu = I(F; Y) - I(F; Y | L). They have two
classes. two-pathways-2021, Section 4.3, has several classes; its simple classifier is a multi-class logistic
regression. The paper does not give the unit of mu. Here logarithms have the base C, the number of classes: mu is at
most 1, and in bits for two classes. An estimate may lie above 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

# For larger A N, the bracket of the estimator is a difference of almost equal numbers, so its series is summed instead.
MIN_FOR_SERIES = 3.0
# The series stops when its terms are smaller by this power of e.
SERIES_DECAY = 50.0


def entropy(*columns: NDArray[np.int64]) -> float:
    """Estimate the joint entropy, in nats, of the distribution of the columns (N,), classes from 0.

    The estimator of Chao, Wang and Jost (2013), "Entropy and the species accumulation curve", Methods in Ecology and
    Evolution 4. Let n_i be the count of value i, f_1 the number of values seen once, and f_2 the number of values seen
    twice. Then H = sum_i n_i / N [psi(N) - psi(n_i)] + f_1 / N (1 - A)^(1 - N) {-ln A - sum_(r < N) (1 - A)^r / r}
    with A = 2 f_2 / [(N - 1) f_1 + 2 f_2]. The second term estimates the share of unseen values. It matters here,
    because a conditional mutual information has C^3 cells. The bias of the corrections of Miller and Madow, of
    Grassberger, and of Chao and Shen is several times larger.
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
    return seen + once / total * _unseen_entropy(total, coverage)


def _unseen_entropy(total: int, coverage: float) -> float:
    """Return (1 - A)^(1 - N) {-ln A - sum_(r < N) (1 - A)^r / r}, which equals sum_(j > 0) (1 - A)^j / (N - 1 + j)."""
    if coverage == 1:
        return 0.0
    if coverage * total > MIN_FOR_SERIES:
        j = np.arange(1.0, np.ceil(SERIES_DECAY / coverage) + 1)
        return float((np.exp(j * np.log1p(-coverage)) / (total - 1 + j)).sum())
    r = np.arange(1.0, total)
    bracket = -np.log(coverage) - (np.exp(r * np.log1p(-coverage)) / r).sum()
    return float(np.exp((1 - total) * np.log1p(-coverage)) * bracket)


def performance_correlation(
    predictions: NDArray[np.int64], labels: NDArray[np.int64], simple: NDArray[np.int64], num_classes: int
) -> float:
    """Estimate mu = I(F; Y) - I(F; Y | L) to the base `num_classes`, of predictions, labels and `simple` ones, (N,).

    `num_classes` is at least 2. The estimate is I(F; L) + I(Y; L) - I((F, Y); L). If mu is 0, estimates scatter round 0
    and may be negative.
    """
    nats = (
        entropy(predictions)
        + entropy(labels)
        + entropy(simple)
        - entropy(predictions, labels)
        - entropy(predictions, simple)
        - entropy(labels, simple)
        + entropy(predictions, labels, simple)
    )
    return float(nats / np.log(num_classes))
