"""Every constant of the patch data, its network and its trainings, and the assumptions they must meet.

adversarial-training-2025, Definition 2.2, Assumption 2.3 and Assumption B.3. Our copy of the text has lost their
formulas and the paper's values. The conditions that it states in words are named ratios here, and each ratio must
exceed one:

- robust features are stronger: alpha is much larger than beta (Assumption 2.3, first part);
- non-robust features are denser: the sum of beta^q over the non-robust patches is larger than that of alpha^q over the
  robust ones (second part), hence many more patches are non-robust than robust;
- all 2k features are orthogonal in R^d, noise is small, the width is of the order of log k (B.3);
- the radius is small against the distance of two points of different classes (Section 2.5), yet large enough for the
  perturbation of Theorem 4.3, which replaces one class's non-robust features by another's;
- the rate of the gradient ascent is much larger than that of the gradient descent (B.3).

B.3 also says that the number of patches is constant. So the second part of Assumption 2.3 limits the strength of
robust features: it needs |J_NR| > |J_R| (alpha / beta)^q.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Lt

from robustfeatures.engine.settings import Strict

Positive = Annotated[float, Gt(0)]


@dataclass(frozen=True, kw_only=True)
class PatchConstants(Strict):
    """One setting of the synthetic experiments.

    classes: k. dimension: d, of one patch. patches: P. robust_patches: |J_R|; the others are J_NR.
    alpha, beta: means of the coefficients of robust and non-robust features. A coefficient is uniform between
    1 - `spread` and 1 + `spread` times its mean. noise: the standard deviation of each coordinate.
    width: m, the filters of each class. exponent, threshold: q and rho of the smoothed ReLU.
    samples: n. learning_rate: eta of gradient descent. ascent_rate: that of the one step of gradient ascent.
    radius: eps, the largest L2 norm of the perturbation of one patch.
    """

    classes: Annotated[int, Ge(2)]
    dimension: Annotated[int, Ge(4)]
    patches: Annotated[int, Ge(2)]
    robust_patches: Annotated[int, Ge(1)]
    alpha: Positive
    beta: Positive
    spread: Annotated[float, Ge(0), Lt(1)]
    noise: Annotated[float, Ge(0)]
    width: Annotated[int, Ge(1)]
    exponent: Annotated[int, Ge(2)]
    threshold: Positive
    samples: Annotated[int, Ge(1)]
    learning_rate: Positive
    ascent_rate: Positive
    radius: Positive

    def ratios(self) -> dict[str, float]:
        """The ratios of Assumptions 2.3 and B.3, larger side over smaller side, for the least favourable draw."""
        alpha, beta, q = self.alpha, self.beta, self.exponent
        weak, strong = 1 - self.spread, 1 + self.spread
        non_robust = self.patches - self.robust_patches
        return {
            "robust features are stronger": alpha * weak / (beta * strong),
            "non-robust features are denser": non_robust
            * (beta * weak) ** q
            / (self.robust_patches * (alpha * strong) ** q),
            "more patches are non-robust": non_robust / self.robust_patches,
            "features are orthogonal": self.dimension / (2 * self.classes - 1),
            "noise is small": beta * weak / (2 * self.noise) if self.noise else math.inf,
            "the width grows with log k": self.width / math.log(self.classes),
            "the radius is small": alpha * weak / self.radius,
            "the radius lets non-robust features be replaced": self.radius / (math.sqrt(2) * beta * strong),
            "ascent is faster than descent": self.ascent_rate / self.learning_rate,
        }
