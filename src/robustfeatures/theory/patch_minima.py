"""Two global minima, constructed explicitly (adversarial-training-2025, Propositions 3.1 and 3.2).

Proposition 3.1: with w_ir = gamma v_i the empirical risk tends to 0 as gamma grows, but the adversarial test error is
1 - o(1). Proposition 3.2: with w_ir = gamma u_i the risk tends to 0 and the adversarial test error is o(1).

Without noise both risks have a closed form. The output of the own class is F_y = m sum over p of s(gamma c_p). The sum
goes over J_NR with c = beta, or over J_R with c = alpha. All other outputs are 0. The loss is log(1 + (k - 1) e^-F_y).

Whether the second half of Proposition 3.2 follows from Assumption 2.3 depends on the ball, in which the perturbation of
each patch has a norm of at most eps.

If eps >= beta, it does not. Add eps u_j of another class j to each patch of J_NR. Then F_j = m |J_NR| s(gamma eps),
while F_y = m |J_R| s(gamma alpha) is unchanged. s(z) / z^q never rises, so eps <= alpha gives
s(gamma eps) >= (eps / alpha)^q s(gamma alpha), hence

    F_j / F_y >= |J_NR| eps^q / (|J_R| alpha^q) >= |J_NR| beta^q / (|J_R| alpha^q) > 1

by the second part of Assumption 2.3, for every gamma. The same dense patches that make non-robust features win in
training also carry planted robust features.

If beta / sqrt(2) < eps < beta, both propositions can hold. The perturbation of Proposition 3.1 moves each patch of J_NR
by eps (v_j - v_y) / sqrt(2), so <v_j, X(p)> = eps / sqrt(2) exceeds <v_y, X(p)> = beta - eps / sqrt(2). For
Proposition 3.2 let gamma (alpha + eps) <= rho, so that s is z^q / (q rho^(q - 1)) throughout. There is no noise. A
patch adds at most m s(gamma eps) to F_j. A patch of J_R leaves at least m s(gamma (alpha - eps)) of F_y. So the class
is safe if

    P eps^q < |J_R| (alpha - eps)^q.

This and Assumption 2.3 hold together for P = 151, |J_R| = 1, alpha = 1, beta = 0.2, eps = 0.15, q = 3: 0.51 < 0.61, and
|J_NR| beta^q = 1.2 > |J_R| alpha^q. For large gamma s is linear. Then planting wins if |J_NR| eps > |J_R| alpha, which
holds here (22.5 > 1). So in this ball the risk has to vanish by the width m, and not by gamma.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from robustfeatures.engine.randomness import derive_seed
from robustfeatures.theory.patch_data import draw, features
from robustfeatures.theory.patch_evaluation import Evaluation
from robustfeatures.theory.patch_network import activation, loss_and_gradient
from robustfeatures.theory.settings import PatchConstants

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

MINIMA = ("non-robust", "robust")


def build_minimum(constants: PatchConstants, minimum: str, gamma: float, like: Tensor) -> Tensor:
    """The filters (k, m, d) of a minimum: for class i all are gamma v_i ("non-robust") or gamma u_i ("robust")."""
    robust, non_robust = features(constants, like)
    kind = {"robust": robust, "non-robust": non_robust}[minimum]
    return gamma * kind[:, None].expand(-1, constants.width, -1)


def noiseless_risk(constants: PatchConstants, minimum: str, gamma: float) -> float:
    """The risk of a minimum in nats, without noise and with all coefficients at their means."""
    count, coefficient = {
        "robust": (constants.robust_patches, constants.alpha),
        "non-robust": (constants.patches - constants.robust_patches, constants.beta),
    }[minimum]
    response = activation(constants)(torch.tensor(gamma * coefficient, dtype=torch.float64))
    margin = constants.width * count * response
    return float(torch.log1p((constants.classes - 1) * torch.exp(-margin)))


def planting_ratio(constants: PatchConstants) -> float:
    """|J_NR| eps^q / (|J_R| alpha^q): above 1, planted robust features outweigh those of the own class."""
    non_robust = constants.patches - constants.robust_patches
    return non_robust / constants.robust_patches * (constants.radius / constants.alpha) ** constants.exponent


def largest_ratio(constants: PatchConstants) -> float:
    """P eps^q / (|J_R| (alpha - eps)^q): below 1, no perturbation fools the robust minimum, if s is polynomial."""
    strength = (constants.radius / (constants.alpha - constants.radius)) ** constants.exponent
    return constants.patches / constants.robust_patches * strength


def measure(
    run: Run,
    *,
    constants: Mapping[str, Any],
    seed: int,
    scales: Sequence[float],
    test_samples: int,
    pgd_steps: int,
    pgd_relative_step_size: float,
    pgd_random_starts: int,
) -> Sequence[Mapping[str, str | int | float]]:
    """Rows (minimum, scale, risk on training data, noiseless risk, accuracies in [0, 1])."""
    setting = PatchConstants(**constants)
    data = draw(setting, setting.samples, torch.Generator().manual_seed(derive_seed(seed, "train")))
    evaluation = Evaluation(
        setting,
        draw(setting, test_samples, torch.Generator().manual_seed(derive_seed(seed, "test"))),
        seed,
        steps=pgd_steps,
        relative_step_size=pgd_relative_step_size,
        random_starts=pgd_random_starts,
    )
    rows: list[Mapping[str, str | int | float]] = []
    for minimum in MINIMA:
        for scale in scales:
            weights = build_minimum(setting, minimum, scale, data.points)
            risk, _ = loss_and_gradient(weights, data.points, data.labels, activation(setting))
            rows.append(
                {
                    "minimum": minimum,
                    "scale": scale,
                    "risk": float(risk),
                    "noiseless_risk": noiseless_risk(setting, minimum, scale),
                    **evaluation(weights),
                }
            )
            run.progress(len(rows), len(MINIMA) * len(scales))
    return rows
