"""The least L2 perturbation of a cluster centre that makes an ideal network err (feature-averaging-2025).

Theorem: with averaged features, w_s proportional to the sum of mu_j over J_s, a network has nearly no robust accuracy
at L2 radii of the order of sqrt(d/k). f_robust withstands radii of the order of sqrt(d). The slides call decoupled
features more robust than averaged ones, and print no order. Clusters and sides are those of `feature_averaging`. The
least perturbations of x = mu_i, without noise, are the following. Each is the minimum of a quadratic over the linear
pieces of the network. The side of mu_i has k - k' clusters, the other k'.

    averaged features                         sqrt(d / k)
    decoupled, k classes                      sqrt(d / 2), half the distance of two centres: the upper limit
    decoupled, logits summed for each side    sqrt(d / (k' + 1))
    f_robust, b = -d/2                        sqrt(d) / 2

f_robust is the sum over J_+ of ReLU(<mu_j, x> + b) minus the sum over J_-. The text has lost b. Here b = -d/2, half-way
between <mu_i, mu_i> = d and <mu_j, mu_i> = 0. At the radius above f_robust is 0, which counts as an error. It takes the
wrong sign only at sqrt(d / 2).

The third line is not of the order of sqrt(d). A perturbation can raise all k' logits of the other side by b d each and
lower the own logit by a d. The sign changes at a + b k' = 1, and the squared norm d (a^2 + b^2 k') is least for a = b.
With equal sides, k' = k/2, the summed logits of this network are at most sqrt(2) times as robust as averaged features,
for every k. A trained network may have more: small negative coefficients of the other clusters add up over a side (E2
finds 1.7 with 24 clusters). The order of sqrt(d / k) stays. Only biases (f_robust) or the largest logit change it.
"""

from __future__ import annotations

import math

TWO_CLASSES = "2-class"
K_CLASSES = "k-class"
OWN_CLASSES = "k-class, classes"
SUMMED = "k-class, summed logits"
ROBUST = "f_robust"


def count_positive(clusters: int, share: float) -> int:
    """The size of J_+ if it has this share of the clusters, rounded; both sides have at least one."""
    return min(max(round(share * clusters), 1), clusters - 1)


def ideal_radius(network: str, clusters: int, dimension: int, positive: int | None = None) -> float:
    """The least L2 perturbation that makes this network err, the median over centres.

    `network` is one of the four names above. `positive` is the size of J_+, by default k/2. With summed logits the
    centres of the larger side have the larger radius.
    """
    positive = clusters // 2 if positive is None else positive
    return {
        TWO_CLASSES: math.sqrt(dimension / clusters),
        OWN_CLASSES: math.sqrt(dimension / 2),
        SUMMED: math.sqrt(dimension / (min(positive, clusters - positive) + 1)),
        ROBUST: math.sqrt(dimension) / 2,
    }[network]
