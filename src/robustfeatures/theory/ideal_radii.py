"""How far the centre of a cluster must be moved until ideal networks err, in closed form (feature-averaging-2025).

Theorem: a network whose weights are averaged features, w_s proportional to the sum of mu_j over J_s, has nearly no
robust accuracy at L2 radii of the order of sqrt(d/k), while f_robust and decoupled features stand radii of the order of
sqrt(d). Clusters and sides are those of `feature_averaging`. At x = mu_i without noise the least perturbations, all by
minimising a quadratic over the pieces of the network, are, with k/2 clusters on each side,

    averaged features                         sqrt(d / k)
    decoupled, k classes                      sqrt(d / 2), half the distance of two centres, so none is better
    decoupled, logits summed for each side    sqrt(2 d / (k + 2))
    f_robust, b = -d/2                        sqrt(d) / 2

f_robust is the sum over J_+ of ReLU(<mu_j, x> + b) minus that over J_-; the text has lost b, and -d/2 lies half-way
between a cluster's own product, d, and that of the others, 0. At its radius f_robust becomes 0 and has no sign, which
counts as an error; it takes the wrong sign only at sqrt(d / 2).

The third line differs from the theorem. A perturbation may raise all k/2 logits of the other side at once, by b d each:
with the own one lowered by a d the sign changes at a + b k/2 = 1, and its squared norm d (a^2 + b^2 k/2) is least for
a = b. So the summed logits of a decoupled network without biases are at most sqrt(2) times as robust as averaged
features, however large k is; biases (f_robust) or the largest logit make use of decoupling.
"""

from __future__ import annotations

import math

TWO_CLASSES = "2-class"
K_CLASSES = "k-class"
OWN_CLASSES = "k-class, classes"
SUMMED = "k-class, summed logits"
ROBUST = "f_robust"


def ideal_radius(network: str, clusters: int, dimension: int) -> float:
    """The least L2 perturbation of a centre for one of the four networks, by its name above."""
    return {
        TWO_CLASSES: math.sqrt(dimension / clusters),
        OWN_CLASSES: math.sqrt(dimension / 2),
        SUMMED: math.sqrt(2 * dimension / (clusters + 2)),
        ROBUST: math.sqrt(dimension) / 2,
    }[network]
