"""Two global minima, constructed explicitly (adversarial-training-2025, Propositions 3.1 and 3.2).

Proposition 3.1: with w_ir = gamma v_i the empirical risk tends to 0 as gamma grows, but the adversarial test error is
1 - o(1). Proposition 3.2: with w_ir = gamma u_i the risk tends to 0 and the adversarial test error is o(1).

Without noise both risks have a closed form. The own class has the margin F_y = m sum over p of s(gamma c_p), the sum
over J_NR with c = beta or over J_R with c = alpha, all other outputs are 0, and the loss is log(1 + (k - 1) e^-F_y).

If the ball contains the perturbation of Proposition 3.1, the second half of Proposition 3.2 does not follow from
Assumption 2.3. Let the perturbation of each patch have a norm of at most eps, and eps >= beta. Add eps u_j of another
class j to each patch of J_NR. Then F_j = m |J_NR| s(gamma eps), while F_y = m |J_R| s(gamma alpha) is unchanged.
s(z) / z^q never rises, so eps <= alpha gives s(gamma eps) >= (eps / alpha)^q s(gamma alpha), hence

    F_j / F_y >= |J_NR| eps^q / (|J_R| alpha^q) >= |J_NR| beta^q / (|J_R| alpha^q) > 1

by the second part of Assumption 2.3, for every gamma. The same dense patches that make non-robust features win in
training also carry planted robust features. `planting_ratio` is the middle term. The network withstands only attacks
that plant no robust features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from robustfeatures.engine.randomness import derive_seed
from robustfeatures.theory.patch_data import draw, features
from robustfeatures.theory.patch_network import activation, loss_and_gradient
from robustfeatures.theory.patch_training import Evaluation
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


def measure(
    run: Run,
    *,
    constants: Mapping[str, Any],
    seed: int,
    scales: Sequence[float],
    test_samples: int,
    pgd_steps: int,
    pgd_relative_step_size: float,
) -> Sequence[Mapping[str, str | int | float]]:
    """Rows (minimum, scale, risk on training data, noiseless risk, accuracies in [0, 1])."""
    setting = PatchConstants(**constants)
    data = draw(setting, setting.samples, torch.Generator().manual_seed(derive_seed(seed, "train")))
    evaluation = Evaluation(setting, test_samples, seed, steps=pgd_steps, relative_step_size=pgd_relative_step_size)
    rows: list[Mapping[str, str | int | float]] = []
    for minimum in MINIMA:
        for scale in scales:
            weights = build_minimum(setting, minimum, scale, data.points)
            risk, _ = loss_and_gradient(weights, data.points, data.labels, activation(setting))
            found = evaluation(weights)
            rows.append(
                {
                    "minimum": minimum,
                    "scale": scale,
                    "risk": float(risk),
                    "noiseless_risk": noiseless_risk(setting, minimum, scale),
                    **{name: found[name] for name in ("clean", "replaced", "one_step", "pgd", "planted")},
                }
            )
            run.progress(len(rows), len(MINIMA) * len(scales))
    return rows
