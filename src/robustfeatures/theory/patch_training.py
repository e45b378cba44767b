"""Standard and adversarial training on patch data, step by step (adversarial-training-2025, Section 6.1, Figure 3).

Theorem 4.3: standard training learns the non-robust features. Its accuracy is 1 - o(1). Under the perturbation that
replaces each beta_p v_y by beta_p v_y', with another class y', its accuracy is o(1).
Theorem 4.4: adversarial training learns the robust features, and its robust accuracy is 1 - o(1). In phase I it behaves
like standard training. In phase II the non-robust features are large enough for the attack to remove them: they stop
growing, and the robust features grow.

In the ball of Theorem 4.3 the robust accuracy of Theorem 4.4 cannot hold for every attack: see `patch_minima`.
Therefore robust accuracy is measured under four attacks: the single step of training, the replacement of Theorem 4.3,
projected gradient descent, and planting the robust feature of another class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from robustfeatures.engine.randomness import derive_seed
from robustfeatures.theory.patch_data import (
    Patches,
    draw,
    draw_other_classes,
    features,
    keep_patches,
    plant_features,
    replace_features,
)
from robustfeatures.theory.patch_network import accuracy, activation, loss_and_gradient, one_step, pgd
from robustfeatures.theory.settings import PatchConstants

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

TRAININGS = ("standard", "adversarial")


def draw_initial_weights(
    constants: PatchConstants, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Filters (k, m, d) with independent entries N(0, 1/d), Section 2.4."""
    shape = (constants.classes, constants.width, constants.dimension)
    deviation = 1 / math.sqrt(constants.dimension)
    return deviation * torch.randn(shape, generator=generator, dtype=dtype)


def train_step(
    weights: Tensor, data: Patches, constants: PatchConstants, *, adversarial: bool
) -> tuple[Tensor, Tensor]:
    """Take one training step: the loss at its (adversarial) points, and the filters after it."""
    points = one_step(weights, data.points, data.labels, constants) if adversarial else data.points
    loss, gradient = loss_and_gradient(weights, points, data.labels, activation(constants))
    return loss, weights - constants.learning_rate * gradient


def correlations(weights: Tensor, constants: PatchConstants) -> tuple[float, float]:
    """The normalised correlations <w_ir, u_i> / |w_ir| and <w_ir, v_i> / |w_ir|.

    Each is the maximum over the filters of a class, averaged over classes.
    """
    normalised = weights / weights.norm(dim=2, keepdim=True)
    robust, non_robust = (
        float(torch.einsum("krd,kd->kr", normalised, kind).amax(dim=1).mean()) for kind in features(constants, weights)
    )
    return robust, non_robust


class Evaluation:
    """Measures filters on the test points of one setting; targets are the same at every step."""

    def __init__(
        self, constants: PatchConstants, count: int, seed: int, *, steps: int, relative_step_size: float
    ) -> None:
        self.constants = constants
        self.relu = activation(constants)
        self.steps, self.relative_step_size = steps, relative_step_size
        generator = torch.Generator().manual_seed(derive_seed(seed, "test"))
        self.data = draw(constants, count, generator)
        targets = draw_other_classes(self.data.labels, constants.classes, generator)
        self.fixed = {
            "clean": self.data.points,
            "replaced": self.data.points + replace_features(self.data, constants, targets),
            "planted": self.data.points + plant_features(self.data, constants, targets),
            "robust_features_alone": keep_patches(self.data.points, self.data.robust),
            "non_robust_features_alone": keep_patches(self.data.points, ~self.data.robust),
        }

    def __call__(self, weights: Tensor) -> dict[str, float]:
        """Accuracies in [0, 1] by name, and the two correlations."""
        points, labels = self.data.points, self.data.labels
        moved = {
            **self.fixed,
            "one_step": one_step(weights, points, labels, self.constants),
            "pgd": pgd(
                *(weights, points, labels, self.constants),
                steps=self.steps,
                relative_step_size=self.relative_step_size,
            ),
        }
        robust, non_robust = correlations(weights, self.constants)
        return {
            "robust_correlation": robust,
            "non_robust_correlation": non_robust,
            **{name: accuracy(weights, at, labels, self.relu) for name, at in moved.items()},
        }


def measure(
    run: Run,
    *,
    constants: Mapping[str, Any],
    seed: int,
    steps: int,
    every: int,
    test_samples: int,
    pgd_steps: int,
    pgd_relative_step_size: float,
) -> Sequence[Mapping[str, str | int | float]]:
    """Rows (training, step, loss, correlations, accuracies in [0, 1]), at step 0 and each `every` steps."""
    setting = PatchConstants(**constants)
    data = draw(setting, setting.samples, torch.Generator().manual_seed(derive_seed(seed, "train")))
    evaluation = Evaluation(setting, test_samples, seed, steps=pgd_steps, relative_step_size=pgd_relative_step_size)
    rows: list[Mapping[str, str | int | float]] = []
    for number, training in enumerate(TRAININGS):
        weights = draw_initial_weights(setting, torch.Generator().manual_seed(derive_seed(seed, "weights")))
        for step in range(steps + 1):
            loss, after = train_step(weights, data, setting, adversarial=training == "adversarial")
            if step % every == 0:
                rows.append({"training": training, "step": step, "loss": float(loss), **evaluation(weights)})
                run.progress(number * steps + step, len(TRAININGS) * steps)
            weights = after
    return rows
