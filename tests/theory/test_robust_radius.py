"""Least perturbations against closed forms, quadratic programs and attacks in the space of points."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import cross_entropy

from robustfeatures.theory import robust_cliffs
from robustfeatures.theory.feature_averaging import Network, Task, cluster_indices, sides, train_networks
from robustfeatures.theory.ideal_radii import K_CLASSES, OWN_CLASSES, ROBUST, SUMMED, TWO_CLASSES, ideal_radius
from robustfeatures.theory.robust_radius import (
    LEAST,
    PGD,
    PGD_CLASSES,
    Readout,
    least_perturbation,
    least_radii,
    make_readout,
    make_readouts,
    measure,
    pgd,
    robust_network,
    summed_output_weights,
)
from tests.runs import MemoryRun

DIMENSION = 64


def ideal(clusters: int, positive: int, neurons: int) -> dict[str, Network]:
    """Exactly averaged and exactly decoupled features."""
    centres = math.sqrt(DIMENSION) * torch.eye(clusters, DIMENSION)
    side = sides(torch.arange(clusters), positive)
    averaged = torch.stack([centres[side == 0].sum(dim=0), centres[side == 1].sum(dim=0)])
    found = {}
    for kind, weights in ((TWO_CLASSES, averaged), (K_CLASSES, centres)):
        weights = weights.repeat_interleave(neurons, dim=0)
        output_weights = Task(kind, clusters, neurons, positive).output_weights(weights)
        found[kind] = Network(weights, torch.zeros(len(weights)), output_weights, torch.zeros(len(weights), clusters))
    return found


@pytest.mark.parametrize(("clusters", "positive"), [(2, 1), (6, 3), (10, 5), (10, 3), (5, 4)])
@pytest.mark.parametrize("neurons", [1, 5])
def test_ideal_networks_have_the_radii_of_the_docstring(clusters: int, positive: int, neurons: int) -> None:
    networks = ideal(clusters, positive, neurons)
    task = Task(K_CLASSES, clusters, neurons, positive)
    clean, at = torch.zeros(clusters, DIMENSION), torch.arange(clusters)
    side = sides(at, positive)
    robust = robust_network(clusters, positive, DIMENSION)
    two, many = networks[TWO_CLASSES], networks[K_CLASSES]
    readout = {
        TWO_CLASSES: make_readout(two, clean, at, side, two.output_weights),
        OWN_CLASSES: make_readout(many, clean, at, at, many.output_weights),
        SUMMED: make_readout(many, clean, at, side, summed_output_weights(task, many.weights)),
        ROBUST: make_readout(robust, clean, at, side, robust.output_weights),
    }
    for name, each in readout.items():
        expected = torch.full((clusters,), ideal_radius(name, clusters, DIMENSION, positive), dtype=torch.float64)
        if name == SUMMED:
            others = torch.where(side == 0, clusters - positive, positive).double()
            expected = (DIMENSION / (others + 1)).sqrt()
            assert float(expected.median()) == pytest.approx(ideal_radius(name, clusters, DIMENSION, positive))
        # Twenty halvings of an interval that is twice the radius.
        torch.testing.assert_close(least_radii(each), expected, rtol=2e-6, atol=0)


def test_f_robust_is_the_formula() -> None:
    noise = torch.randn(20, DIMENSION, generator=torch.Generator().manual_seed(0))
    network, clusters = robust_network(6, 2, DIMENSION), cluster_indices(20, 6)
    outputs = network.preactivations(noise, clusters).clamp(min=0) @ network.output_weights
    centres = math.sqrt(DIMENSION) * torch.eye(6, DIMENSION)
    responses = ((centres[clusters] + noise) @ centres.T - DIMENSION / 2).relu()
    expected = responses[:, :2].sum(dim=1) - responses[:, 2:].sum(dim=1)
    torch.testing.assert_close(DIMENSION * (outputs[:, 0] - outputs[:, 1]), expected, rtol=1e-4, atol=1e-3)


def exact(weights: Tensor, preactivations: Tensor, signs: Tensor) -> float:
    """The least perturbation of one point: the best of a quadratic program for each set of active neurons."""
    rows, z, s = weights.numpy(), preactivations.numpy(), signs.numpy()
    found = np.inf
    for pattern in itertools.product((0.0, 1.0), repeat=len(s)):
        on = np.array(pattern)
        side = 2 * on - 1
        constraints = [
            {
                "type": "ineq",
                "fun": lambda delta, on=on: -(s * on) @ (z + rows @ delta),
                "jac": lambda _, on=on: -(s * on) @ rows,
            },
            {
                "type": "ineq",
                "fun": lambda delta, side=side: side * (z + rows @ delta),
                "jac": lambda _, side=side: side[:, None] * rows,
            },
        ]
        solved = minimize(
            lambda delta: delta @ delta / 2,
            np.zeros(rows.shape[1]),
            jac=lambda delta: delta,
            method="SLSQP",
            constraints=constraints,
            options={"maxiter": 200, "ftol": 1e-12},
        )
        if solved.success:
            found = min(found, float(np.linalg.norm(solved.x)))
    return found


def small_networks() -> tuple[Network, Network, Task]:
    tasks = [Task(TWO_CLASSES, 4, 2, 2), Task(K_CLASSES, 4, 1, 2)]
    two, many = train_networks(tasks, dimension=60, samples=80, deviation=1e-3, learning_rate=0.02, steps=60, seed=3)
    return two, many, tasks[1]


def reduced(weights: Tensor) -> Tensor:
    """The same weights in an orthonormal basis of their span, (N, N). Perturbations outside it change nothing."""
    return torch.linalg.qr(weights.double().T).R.T


@pytest.mark.parametrize("which", [TWO_CLASSES, SUMMED, ROBUST])
def test_least_perturbations_are_those_of_quadratic_programs(which: str) -> None:
    """To within a thousandth: at a kink the share of a neuron is found by averaging six rounds."""
    two, many, task = small_networks()
    readout = make_readouts(two, many, task, 60, 12, seed=3)[which]
    weights = {TWO_CLASSES: two, SUMMED: many, ROBUST: robust_network(4, 2, 60)}[which].weights
    signs = readout.output_weights.T[readout.labels] - readout.output_weights.T[1 - readout.labels]
    found = least_radii(readout)
    assert (found > 0).any()
    for number in range(len(found)):
        if found[number] > 0:
            expected = exact(reduced(weights), readout.preactivations[number], signs[number])
            assert float(found[number]) == pytest.approx(expected, rel=1e-3)


def test_an_upper_bound_even_where_neurons_conflict() -> None:
    """With random signs and weights the search may miss the nearest piece, but its radius is never too small."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    preactivations = torch.randn(12, 5, generator=generator, dtype=torch.float64)
    signs = torch.randn(12, 5, generator=generator, dtype=torch.float64)
    found = least_perturbation(preactivations, signs, weights @ weights.T)
    outputs = (signs * preactivations.clamp(min=0)).sum(dim=1)
    assert torch.equal(found == 0, outputs <= 0)
    for number in (outputs > 0).nonzero().squeeze(1).tolist():
        assert float(found[number]) >= exact(weights, preactivations[number], signs[number]) * (1 - 1e-6)


@pytest.mark.parametrize("which", [OWN_CLASSES, SUMMED])
def test_the_attack_in_the_span_is_the_attack_in_the_space_of_points(which: str) -> None:
    two, many, task = small_networks()
    readout = make_readouts(two, many, task, 60, 40, seed=3)[which]
    radius = float(least_radii(readout).median())
    # Points whose products are those of the read-out: the least-norm ones.
    weights = many.weights.double()
    x = torch.linalg.lstsq(weights, readout.preactivations.T).solution.T
    delta = torch.zeros_like(x)
    for _ in range(20):
        delta.requires_grad_()
        outputs = ((x + delta) @ weights.T).relu() @ readout.output_weights
        (gradient,) = torch.autograd.grad(cross_entropy(outputs, readout.labels, reduction="sum"), delta)
        delta = delta.detach() + 0.1 * radius * gradient / gradient.norm(dim=1, keepdim=True)
        delta = delta * (radius / delta.norm(dim=1, keepdim=True)).clamp(max=1)
    expected = readout.is_wrong((x + delta) @ weights.T)
    found = pgd(readout, readout, radius, steps=20, relative_step_size=0.1)
    assert torch.equal(found, expected)
    assert 0 < found.sum() < len(found)
    # No attack succeeds below the least perturbation.
    assert not (found & (least_radii(readout) > radius)).any()


# Four clusters in 100 dimensions, so that a radius over sqrt(d) is a tenth of the radius.
TRAINED: dict[str, Any] = {
    "dimension": 100,
    "samples": 60,
    "deviation": 1e-3,
    "learning_rate": 0.02,
    "steps": 60,
    "seed": 3,
}


def trained_readouts(points: int) -> dict[str, Readout]:
    tasks = [Task(TWO_CLASSES, 4, 2, 2), Task(K_CLASSES, 4, 2, 2)]
    two, many = train_networks(tasks, **TRAINED)
    return make_readouts(two, many, tasks[1], 100, points, seed=3)


def test_a_point_that_an_attack_broke_at_a_smaller_radius_is_broken_at_a_larger_one() -> None:
    """Radii in any order. The k-class network's sum of logits is attacked as it is, and through its classes."""
    radii, steps = (0.3, 0.5, 0.7, 1.0, 1.4), {"steps": 10, "relative_step_size": 0.25}
    asked = {"pgd_steps": 10, "pgd_relative_step_size": 0.25, **TRAINED}
    rows = measure(MemoryRun(), clusters=4, neurons=2, test_samples=200, relative_radii=radii[::-1], **asked)
    found = {(row["network"], row["attack"], row["relative_radius"]): row["accuracy"] for row in rows}
    readouts = trained_readouts(200)
    assert len(found) == len(rows) == (2 * len(readouts) + 1) * len(radii)
    regained = 0
    attacked = {(name, PGD): name for name in readouts} | {(SUMMED, PGD_CLASSES): OWN_CLASSES}
    for (name, attack), at in attacked.items():
        broken = torch.zeros(200, dtype=torch.bool)
        for relative in radii:
            now = pgd(readouts[name], readouts[at], 10 * relative, **steps)
            regained += int((broken & ~now).sum())
            broken |= now
            assert found[name, attack, relative] == pytest.approx((~broken).double().mean().item())
    # PGD alone is weaker at the largest radius, where its steps are longest.
    assert regained > 0
    for name, readout in readouts.items():
        for relative in radii:
            withstood = (least_radii(readout) > 10 * relative).double().mean().item()
            assert found[name, LEAST, relative] == pytest.approx(withstood)


def test_a_cliff_is_the_median_of_the_least_perturbations_over_the_root_of_the_dimension() -> None:
    rows = robust_cliffs.measure(MemoryRun(), clusters=(4,), neurons=2, test_samples=41, **TRAINED)
    found = {row["network"]: row["relative_cliff"] for row in rows}
    assert found == {
        name: pytest.approx(np.median(least_radii(readout).numpy()) / 10)
        for name, readout in trained_readouts(41).items()
    }
    # f_robust has a radius of sqrt(d) / 2 at the centres; noise moves that of a point.
    assert found[ROBUST] == pytest.approx(0.5, rel=0.3)
