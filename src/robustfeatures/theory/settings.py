"""Every constant of the patch data, its network and its trainings, and the assumptions they must meet.

adversarial-training-2025, Definition 2.2, Assumption 2.3 and Assumption B.3. Our copy of the text has lost their
formulas and the paper's values. The conditions that it states in words are named ratios here, and each ratio must
exceed one:

- robust features are stronger: alpha is much larger than beta (Assumption 2.3, first part);
- non-robust features are denser: the sum of beta^q over the non-robust patches is larger than that of alpha^q over the
  robust ones (second part), hence many more patches are non-robust than robust;
- all 2k features are orthogonal in R^d, noise is small, the width is of the order of log k (B.3);
- the radius is small against the distance of two points of different classes (Section 2.5), yet large enough for the
  perturbation of Theorem 4.3: eps > beta / sqrt(2) makes another class's non-robust feature the larger one, and
  eps = sqrt(2) beta replaces the feature wholly;
- the rate of the gradient ascent is much larger than that of the gradient descent (B.3).

B.3 also says that the number of patches is constant. So the second part of Assumption 2.3 limits the strength of
robust features: it needs |J_NR| > |J_R| (alpha / beta)^q.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Lt
from pydantic import AfterValidator

from robustfeatures.engine.settings import Strict

Positive = Annotated[float, Gt(0)]


@dataclass(frozen=True, kw_only=True)
class PatchConstants(Strict):
    """One setting of the synthetic experiments; each constant with the paper's symbol."""

    classes: Annotated[int, Ge(2)]
    """The number of classes, k."""
    dimension: Annotated[int, Ge(4)]
    """The dimension of one patch, d."""
    patches: Annotated[int, Ge(2)]
    """The number of patches of one point, P."""
    robust_patches: Annotated[int, Ge(1)]
    """The number of patches with a robust feature, |J_R|; the others, J_NR, have a non-robust one."""
    alpha: Positive
    """The mean of the coefficients of robust features."""
    beta: Positive
    """The mean of the coefficients of non-robust features."""
    spread: Annotated[float, Ge(0), Lt(1)]
    """A coefficient is uniform between 1 - `spread` and 1 + `spread` times its mean."""
    noise: Annotated[float, Ge(0)]
    """The standard deviation of the noise in each coordinate."""
    width: Annotated[int, Ge(1)]
    """The filters of each class, m."""
    exponent: Annotated[int, Ge(2)]
    """The exponent of the smoothed ReLU, q."""
    threshold: Positive
    """The point at which the smoothed ReLU becomes linear, rho."""
    samples: Annotated[int, Ge(1)]
    """The number of training points, n."""
    learning_rate: Positive
    """The learning rate of gradient descent, eta."""
    ascent_rate: Positive
    """The rate of the one step of gradient ascent."""
    radius: Positive
    """The largest L2 norm of the perturbation of one patch, eps."""

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
            "the radius lets non-robust features be outweighed": math.sqrt(2) * self.radius / (beta * strong),
            "ascent is faster than descent": self.ascent_rate / self.learning_rate,
        }


def _check_patches(constants: PatchConstants) -> PatchConstants:
    if 2 * constants.classes > constants.dimension:
        raise ValueError(f"dimension: {2 * constants.classes} orthogonal features do not fit")
    if constants.robust_patches >= constants.patches:
        raise ValueError("robust_patches: must be fewer than patches")
    return constants


Patches = Annotated[PatchConstants, AfterValidator(_check_patches)]
