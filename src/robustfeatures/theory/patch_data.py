"""Patch data made of robust and non-robust features (adversarial-training-2025, Definitions 2.1 and 2.2).

A label y is uniform on k classes. A point has P patches. |J_R| of them, drawn uniformly, hold the robust feature of its
class; the other patches hold the non-robust feature:

    X(p) = alpha_p u_y + xi_p for p in J_R,    X(p) = beta_p v_y + xi_p for p in J_NR,    xi_p ~ N(0, sigma^2 I_d).

The 2k features are orthonormal and parallel to the axes: u_i = e_i and v_i = e_(k + i). The text has lost the
distributions of alpha_p and beta_p. The paper assumes that they concentrate at their means; here they are uniform
around their means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from robustfeatures.theory.settings import PatchConstants


@dataclass(frozen=True)
class Patches:
    """Points (n, P, d), labels int64 (n,), the mask of J_R bool (n, P), and coefficients (n, P)."""

    points: Tensor
    labels: Tensor
    robust: Tensor
    coefficients: Tensor


def features(constants: PatchConstants, like: Tensor) -> tuple[Tensor, Tensor]:
    """The robust and the non-robust features, (k, d) each, of the dtype and device of `like`."""
    axes = torch.eye(constants.dimension, dtype=like.dtype, device=like.device)
    return axes[: constants.classes], axes[constants.classes : 2 * constants.classes]


def draw(
    constants: PatchConstants, count: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Patches:
    """Draw `count` points of Definition 2.2."""
    shape = (count, constants.patches)
    labels = torch.randint(constants.classes, (count,), generator=generator)
    order = torch.rand(shape, generator=generator).argsort(dim=1)
    robust = order < constants.robust_patches
    means = constants.beta + (constants.alpha - constants.beta) * robust.to(dtype)
    coefficients = means * (1 + constants.spread * (2 * torch.rand(shape, generator=generator, dtype=dtype) - 1))
    points = constants.noise * torch.randn((*shape, constants.dimension), generator=generator, dtype=dtype)
    axis = torch.where(robust, labels[:, None], constants.classes + labels[:, None])
    points.scatter_add_(2, axis[..., None], coefficients[..., None])
    return Patches(points, labels, robust, coefficients)


def keep_patches(points: Tensor, kept: Tensor) -> Tensor:
    """Set all patches of the points (n, P, d) to zero except those `kept`, bool (n, P): Definition 4.1."""
    return points * kept[..., None]


def rotate_features(data: Patches, constants: PatchConstants, targets: Tensor) -> Tensor:
    """The perturbation (n, P, d) of Theorem 4.3 as far as the ball allows: beta_p (v_target - v_y) on J_NR, 0 on J_R.

    It replaces the non-robust features if eps >= sqrt(2) beta_p. If eps is smaller, it moves them by eps in the same
    direction, and v_target outweighs v_y if eps > beta_p / sqrt(2).
    """
    _, non_robust = features(constants, data.points)
    change = non_robust[targets] - non_robust[data.labels]
    lengths = data.coefficients.clamp(max=constants.radius / math.sqrt(2))
    return torch.where(data.robust, 0.0, lengths)[..., None] * change[:, None]


def plant_features(data: Patches, constants: PatchConstants, targets: Tensor) -> Tensor:
    """The perturbation (n, P, d) that adds another class's robust feature, eps u_target, to each patch of J_NR."""
    robust, _ = features(constants, data.points)
    return constants.radius * torch.where(data.robust, 0.0, 1.0)[..., None] * robust[targets][:, None]


def plant_and_lower_features(data: Patches, constants: PatchConstants, targets: Tensor) -> Tensor:
    """The perturbation of `plant_features` that also lowers the own robust feature, by eps u_y, on each patch of J_R.

    It lowers to 0 what is smaller than eps.
    """
    robust, _ = features(constants, data.points)
    lengths = torch.where(data.robust, data.coefficients.clamp(max=constants.radius), 0.0)
    return plant_features(data, constants, targets) - lengths[..., None] * robust[data.labels][:, None]


def list_other_classes(labels: Tensor, classes: int) -> Tensor:
    """Every other class of each label (n,), as (classes - 1, n)."""
    return (labels + torch.arange(1, classes, device=labels.device)[:, None]) % classes
