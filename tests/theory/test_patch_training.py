"""Both trainings against autograd and the paper's iteration of the correlations; the course they take."""

from __future__ import annotations

from dataclasses import asdict, replace

import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

from robustfeatures.engine.randomness import derive_seed
from robustfeatures.theory.patch_data import draw, features
from robustfeatures.theory.patch_network import activation, is_right, logits
from robustfeatures.theory.patch_training import correlations, draw_initial_weights, measure, train_step
from tests.runs import MemoryRun
from tests.theory.settings import SMALL


@pytest.mark.parametrize("adversarial", [False, True])
def test_steps_follow_autograd(adversarial: bool) -> None:
    """Section 2.5 with autograd, per point and per patch; the points of the loss are constants of its gradient."""
    relu = activation(SMALL)
    data = draw(SMALL, 8, torch.Generator().manual_seed(0), torch.float64)
    weights = 6 * draw_initial_weights(SMALL, torch.Generator().manual_seed(1), torch.float64)
    plain = weights.clone()
    for _ in range(3):
        _, weights = train_step(weights, data, SMALL, adversarial=adversarial)
        points = data.points.clone().requires_grad_()
        if adversarial:
            own = logits(plain, points, relu)[torch.arange(8), data.labels].sum()
            change = -SMALL.ascent_rate * torch.autograd.grad(own, points)[0]
            for patch in change.flatten(0, 1):
                if patch.norm() > SMALL.radius:
                    patch.mul_(SMALL.radius / patch.norm())
            points = points.detach() + change
        at = plain.clone().requires_grad_()
        loss = cross_entropy(logits(at, points.detach(), relu), data.labels)
        plain = plain - SMALL.learning_rate * torch.autograd.grad(loss, at)[0]
    torch.testing.assert_close(weights, plain, rtol=1e-9, atol=1e-12)


def test_correlations_iterate_as_in_lemma_5_1() -> None:
    """Without noise: <w_ir, u_i> grows by eta E[1(y = i) (1 - p_i) sum over J_R of alpha s'(alpha <w_ir, u_i>)], and
    <w_ir, v_i> by the same over J_NR with beta."""
    quiet = replace(SMALL, noise=0.0)
    relu = activation(quiet)
    data = draw(quiet, 30, torch.Generator().manual_seed(0), torch.float64)
    weights = 5 * draw_initial_weights(quiet, torch.Generator().manual_seed(1), torch.float64)
    probabilities = logits(weights, data.points, relu).softmax(dim=1)
    _, after = train_step(weights, data, quiet, adversarial=False)
    for kind, held in zip(features(quiet, weights), (data.robust, ~data.robust), strict=True):
        before = torch.einsum("krd,kd->kr", weights, kind)
        for i in range(quiet.classes):
            mine = data.labels == i
            coefficients = data.coefficients[mine] * held[mine]
            slopes = relu.slope(coefficients[..., None] * before[i])
            terms = (1 - probabilities[mine, i])[:, None] * (coefficients[..., None] * slopes).sum(dim=1)
            growth = quiet.learning_rate * terms.sum(dim=0) / len(data.labels)
            torch.testing.assert_close(after[i] @ kind[i], before[i] + growth)


def test_correlations_of_filters_that_are_features() -> None:
    weights = torch.zeros(SMALL.classes, SMALL.width, SMALL.dimension)
    robust, non_robust = features(SMALL, weights)
    weights[:] = torch.randn(SMALL.classes, SMALL.width, 1).abs() * (3 * robust + 4 * non_robust)[:, None]
    assert correlations(weights, SMALL) == pytest.approx((0.6, 0.8), rel=1e-5)


def test_the_course_of_both_trainings() -> None:
    """Theorem 4.3 and phases I and II: the non-robust features first; only the attack makes the robust ones grow on."""
    rows = measure(
        MemoryRun(),
        constants=asdict(SMALL),
        seed=0,
        steps=400,
        every=100,
        test_samples=60,
        pgd_steps=5,
        pgd_relative_step_size=0.5,
        pgd_random_starts=1,
    )
    found = pd.DataFrame(rows).set_index(["training", "step"])
    standard, adversarial = found.loc["standard"], found.loc["adversarial"]
    assert standard.loc[0].drop("loss").equals(adversarial.loc[0].drop("loss"))
    end = standard.loc[400]
    assert end["clean"] == end["trained_clean"] == end["non_robust_features_alone"] == 1.0
    assert end["rotated"] == end["pgd"] == end["trained_robust"] == 0.0
    assert end["non_robust_correlation"] > 2 * end["robust_correlation"]
    # Robust features stop with the loss in standard training, and grow on under attack.
    growth = {
        name: rows["robust_correlation"].loc[400] - rows["robust_correlation"].loc[100]
        for name, rows in (("standard", standard), ("adversarial", adversarial))
    }
    assert growth["standard"] < 0.01 < 0.3 < growth["adversarial"]
    assert adversarial.loc[100, "clean"] == 1.0
    assert adversarial.loc[100, "non_robust_correlation"] > 2 * adversarial.loc[100, "robust_correlation"]
    assert adversarial.loc[400, "robust_features_alone"] == 1.0
    # Rotated non-robust features no longer fool the network, planted robust ones do.
    assert adversarial.loc[400, "rotated"] > 0.9
    assert adversarial.loc[400, "planted"] < 0.1 < 0.9 < adversarial.loc[100, "planted"]
    # All attacks together are at least as strong as each, and no attack breaks what the bound certifies.
    each = found[["clean", "one_step", "rotated", "planted", "planted_and_lowered", "pgd"]]
    assert (found["robust"] <= each.min(axis=1) + 1e-9).all()
    assert (found["certified"] <= found["robust"]).all()


def test_rows_tell_training_points_from_fresh_ones() -> None:
    """Six training points and one step, after which few of 200 fresh points are right."""
    few = replace(SMALL, samples=6)
    rows = measure(
        MemoryRun(),
        constants=asdict(few),
        seed=0,
        steps=1,
        every=1,
        test_samples=200,
        pgd_steps=1,
        pgd_relative_step_size=0.5,
        pgd_random_starts=0,
    )
    (last,) = (row for row in rows if (row["training"], row["step"]) == ("standard", 1))

    def generator(name: str) -> torch.Generator:
        return torch.Generator().manual_seed(derive_seed(0, name))

    trained, fresh = draw(few, 6, generator("train")), draw(few, 200, generator("test"))
    _, weights = train_step(draw_initial_weights(few, generator("weights")), trained, few, adversarial=False)
    expected = {
        name: is_right(weights, data.points, data.labels, activation(few)).double().mean().item()
        for name, data in (("trained_clean", trained), ("clean", fresh))
    }
    assert {name: last[name] for name in expected} == pytest.approx(expected)
    assert expected["clean"] < expected["trained_clean"]
