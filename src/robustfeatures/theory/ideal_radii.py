"""The least L2 perturbation of a cluster centre that makes an ideal network err (feature-averaging-2025).

Theorem: with averaged features, w_s proportional to the sum of mu_j over J_s, a network has nearly no robust accuracy
at L2 radii of the order of sqrt(d/k). f_robust and decoupled features withstand radii of the order of sqrt(d). Clusters
and sides are those of `feature_averaging`. With k/2 clusters on each side the least perturbations of x = mu_i, without
noise, are the following. Each is the minimum of a quadratic over the linear pieces of the network.

    averaged features                         sqrt(d / k)
    decoupled, k classes                      sqrt(d / 2), half the distance of two centres: the upper limit
    decoupled, logits summed for each side    sqrt(2 d / (k + 2))
    f_robust, b = -d/2                        sqrt(d) / 2

f_robust is the sum over J_+ of ReLU(<mu_j, x> + b) minus the sum over J_-. The text has lost b. Here b = -d/2, half-way
between <mu_i, mu_i> = d and <mu_j, mu_i> = 0. At the radius above f_robust is 0, which counts as an error. It takes the
wrong sign only at sqrt(d / 2).

The third line differs from the theorem. A perturbation can raise all k/2 logits of the other side by b d each and lower
the own logit by a d. The sign changes at a + b k/2 = 1, and the squared norm d (a^2 + b^2 k/2) is least for a = b. So
the summed logits of a decoupled network without biases are at most sqrt(2) times as robust as averaged features, for
every k. Only biases (f_robust) or the largest logit profit from decoupling.
"""

from __future__ import annotations

import math

TWO_CLASSES = "2-class"
K_CLASSES = "k-class"
OWN_CLASSES = "k-class, classes"
SUMMED = "k-class, summed logits"
ROBUST = "f_robust"


def ideal_radius(network: str, clusters: int, dimension: int) -> float:
    """The least L2 perturbation of a centre that makes this network err; `network` is one of the four names above."""
    return {
        TWO_CLASSES: math.sqrt(dimension / clusters),
        OWN_CLASSES: math.sqrt(dimension / 2),
        SUMMED: math.sqrt(2 * dimension / (clusters + 2)),
        ROBUST: math.sqrt(dimension) / 2,
    }[network]
