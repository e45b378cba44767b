"""Standard and adversarial training on patch data, step by step (adversarial-training-2025, Section 6.1, Figure 3).

Theorem 4.3: standard training learns the non-robust features. Its accuracy is 1 - o(1). Under the perturbation that
replaces each beta_p v_y by beta_p v_y', with another class y', its accuracy is o(1).
Theorem 4.4: adversarial training learns the robust features, and its robust accuracy is 1 - o(1). In phase I it behaves
like standard training. In phase II the non-robust features are large enough for the attack to remove them: they stop
growing, and the robust features grow.

Theorem 4.3 holds for the training points too, and Theorem 4.4 for them under all perturbations in the ball.

Whether the ball of Theorem 4.3 leaves room for the robust accuracy of Theorem 4.4 depends on the constants: see
`patch_minima`. `patch_evaluation` has the attacks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from robustfeatures.engine.randomness import derive_seed
from robustfeatures.theory.patch_data import Patches, draw, features
from robustfeatures.theory.patch_evaluation import Evaluation
from robustfeatures.theory.patch_network import activation, loss_and_gradient, one_step
from robustfeatures.theory.settings import PatchConstants

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

TRAININGS = ("standard", "adversarial")


def draw_initial_weights(
    constants: PatchConstants, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Filters (k, m, d) with independent entries N(0, 1/d).

    Section 2.4 says only "the standard Xavier initialization"; the variance 1/d is our reading.
    """
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

    Each is the maximum over the filters of a class, averaged over classes. This is our reading: the formula of Section
    6.1 is lost in the text that we have.
    """
    normalised = weights / weights.norm(dim=2, keepdim=True)
    robust, non_robust = (
        float(torch.einsum("krd,kd->kr", normalised, kind).amax(dim=1).mean()) for kind in features(constants, weights)
    )
    return robust, non_robust


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
    pgd_random_starts: int,
) -> Sequence[Mapping[str, str | int | float]]:
    """Rows (training, step, loss, correlations, accuracies in [0, 1]), at step 0 and each `every` steps.

    The accuracies are those on fresh points. `trained_clean` and `trained_robust` are those on the training points, and
    NaN before the last of these steps.
    """
    setting = PatchConstants(**constants)
    data = draw(setting, setting.samples, torch.Generator().manual_seed(derive_seed(seed, "train")))
    fresh = draw(setting, test_samples, torch.Generator().manual_seed(derive_seed(seed, "test")))
    on_fresh, on_trained = (
        Evaluation(
            setting,
            points,
            seed,
            steps=pgd_steps,
            relative_step_size=pgd_relative_step_size,
            random_starts=pgd_random_starts,
        )
        for points in (fresh, data)
    )
    rows: list[Mapping[str, str | int | float]] = []
    for number, training in enumerate(TRAININGS):
        weights = draw_initial_weights(setting, torch.Generator().manual_seed(derive_seed(seed, "weights")))
        for step in range(steps + 1):
            loss, after = train_step(weights, data, setting, adversarial=training == "adversarial")
            if step % every == 0:
                robust, non_robust = correlations(weights, setting)
                trained = on_trained(weights) if step + every > steps else {}
                rows.append(
                    {
                        "training": training,
                        "step": step,
                        "loss": float(loss),
                        "robust_correlation": robust,
                        "non_robust_correlation": non_robust,
                        **on_fresh(weights),
                        **{f"trained_{name}": trained.get(name, math.nan) for name in ("clean", "robust")},
                    }
                )
                run.progress(number * steps + step, len(TRAININGS) * steps)
            weights = after
    return rows
