"""The least L2 perturbations that make a trained network on clusters err (feature-averaging-2025).

The theorems and the radii of ideal networks are in `ideal_radii`. Only the part of a perturbation in the span of the
weights matters: delta = W^T a changes the pre-activations by G a and has the norm sqrt(a^T G a), G = W W^T. So attacks
work on N numbers instead of d, with the same result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from robustfeatures.attacks.margins import compute_log_odds, compute_margins
from robustfeatures.engine.randomness import derive_seed
from robustfeatures.theory.feature_averaging import (
    Network,
    Task,
    cluster_indices,
    sides,
    train_networks,
)
from robustfeatures.theory.ideal_radii import K_CLASSES, OWN_CLASSES, ROBUST, SUMMED, TWO_CLASSES, count_positive

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

LEAST = "least perturbation"
PGD = "PGD"
PGD_CLASSES = "PGD on the classes"
# A gradient with a smaller squared norm has no reliable direction.
MIN_SQUARED_NORM = 1e-30
HALVINGS = 20
# Rounds of the search for the nearest linear piece, and the shares of opposing neurons that are on at its start.
ROUNDS = 6
SHARES = (0.0, 0.5, 1.0)


@dataclass(frozen=True)
class Readout:
    """A network at the test points: pre-activations (n, N), G (N, N), output weights (N, outputs), labels (n,)."""

    preactivations: Tensor
    gram: Tensor
    output_weights: Tensor
    labels: Tensor

    def select(self, chosen: Tensor) -> Readout:
        """The same network at the points of the mask `chosen`, bool (n,)."""
        return replace(self, preactivations=self.preactivations[chosen], labels=self.labels[chosen])

    def is_wrong(self, preactivations: Tensor) -> Tensor:
        """Bool (n,): another output is at least as large as that of the label."""
        return compute_margins(preactivations.relu() @ self.output_weights, self.labels) <= 0


def make_readout(network: Network, noise: Tensor, clusters: Tensor, labels: Tensor, output_weights: Tensor) -> Readout:
    """Evaluate a network at the centres of `clusters` (n,) plus noise (n, d), in float64."""
    weights = network.weights.double()
    return Readout(
        network.preactivations(noise, clusters).double(), weights @ weights.T, output_weights.double(), labels
    )


def summed_output_weights(task: Task, like: Tensor) -> Tensor:
    """Output weights (N, 2) that sum the logits of the clusters of each side."""
    by_class = task.output_weights(like)
    return by_class @ one_hot(sides(torch.arange(task.clusters), task.positive), 2).to(by_class.dtype)


def robust_network(clusters: int, positive: int, dimension: int) -> Network:
    """f_robust / d, with the same signs as f_robust: one neuron mu_j / d for each cluster, with the bias -1/2."""
    weights = torch.eye(clusters, dimension) / math.sqrt(dimension)
    output_weights = one_hot(sides(torch.arange(clusters), positive), 2).float()
    return Network(weights, torch.full((clusters,), -0.5), output_weights, torch.eye(clusters) / dimension)


def least_perturbation(
    preactivations: Tensor, signs: Tensor, gram: Tensor, *, shares: Sequence[float] = SHARES
) -> Tensor:
    """The L2 norms (n,) of the smallest perturbations found that make the sum of s_r ReLU(z_r) zero or negative.

    preactivations: z (n, N). signs: s (n, N), positive for neurons that support the label. gram: (N, N) or (n, N, N).

    For given active neurons the sum is linear, and the nearest point of its zero set has a closed form. At that point
    other neurons are active, and the search repeats with them. It starts with the active neurons plus a share of the
    opposing ones, those nearest to activity first, for each of `shares`: the gradient at the point misses inactive
    neurons. Bisection along the ray ends where the network itself errs, so each norm is an upper bound.
    """
    best = torch.where((signs * preactivations.clamp(min=0)).sum(dim=1) <= 0, 0.0, torch.inf).to(preactivations.dtype)
    opposing_rank = torch.where(signs < 0, preactivations, -torch.inf).argsort(dim=1, descending=True).argsort(dim=1)
    for share in shares:
        turned_on = (signs < 0) & (opposing_rank < share * (signs < 0).sum(dim=1, keepdim=True))
        active = ((preactivations > 0) | turned_on).to(preactivations.dtype)
        for number in range(ROUNDS):
            gradient = signs * active
            change = -torch.matmul(gradient[:, None], gram).squeeze(1)
            squared = -(gradient * change).sum(dim=1).clamp(max=-MIN_SQUARED_NORM)
            nearest = ((gradient * preactivations).sum(dim=1) / squared).clamp(min=0)
            best = torch.minimum(best, _find_crossing(preactivations, signs, change, nearest) * squared.sqrt())
            now = (preactivations + nearest[:, None] * change > 0).to(preactivations.dtype)
            # The least perturbation may end at a convex kink, where a supporting neuron is partly on.
            active = torch.where(signs > 0, active + (now - active) * 2 / (number + 3), now)
    return best


def _find_crossing(preactivations: Tensor, signs: Tensor, change: Tensor, nearest: Tensor) -> Tensor:
    """The t <= 2 `nearest` at which the sum at z + t `change` falls to zero; infinite where it stays positive."""

    def is_wrong(at: Tensor) -> Tensor:
        return (signs * (preactivations + at[:, None] * change).clamp(min=0)).sum(dim=1) <= 0

    return find_least(is_wrong, 2 * nearest, halvings=HALVINGS)


def find_least(is_wrong: Callable[[Tensor], Tensor], most: Tensor, *, halvings: int) -> Tensor:
    """The least t (n,) in [0, `most`] at which each point is wrong, by bisection; infinite where it is right at `most`.

    The result is too large by at most `most` / 2^`halvings`, if a point that is wrong at some t is so at every larger
    one. Otherwise it is a t at which the point is wrong, not always the least.
    """
    low, high = torch.zeros_like(most), most
    found = is_wrong(high)
    for _ in range(halvings):
        middle = (low + high) / 2
        wrong = is_wrong(middle)
        low, high = torch.where(wrong, low, middle), torch.where(wrong, middle, high)
    return torch.where(found, high, torch.inf)


def least_radii(readout: Readout) -> Tensor:
    """The least perturbation (n,) that makes another output as large as that of the label; 0 where it is so already."""
    outputs = readout.output_weights.shape[1]
    found = torch.full((len(readout.labels),), torch.inf, dtype=readout.preactivations.dtype)
    own = readout.output_weights.T[readout.labels]
    for shift in range(1, outputs):
        signs = own - readout.output_weights.T[(readout.labels + shift) % outputs]
        found = torch.minimum(found, _least_perturbation_of_used_neurons(readout, signs))
    return found


def _least_perturbation_of_used_neurons(readout: Readout, signs: Tensor) -> Tensor:
    """The least perturbations, without the neurons whose sign is 0."""
    used = signs != 0
    width = int(used.sum(dim=1).amax())
    if width == signs.shape[1]:
        return least_perturbation(readout.preactivations, signs, readout.gram)
    chosen = used.long().argsort(dim=1, descending=True, stable=True)[:, :width]
    gram = readout.gram[chosen[:, :, None], chosen[:, None, :]]
    # The opposing neurons belong to one class and are nearly identical.
    return least_perturbation(
        readout.preactivations.gather(1, chosen), signs.gather(1, chosen), gram, shares=(0.0, 1.0)
    )


def pgd(readout: Readout, attacked: Readout, radius: float, *, steps: int, relative_step_size: float) -> Tensor:
    """Attack the log odds of `attacked` by PGD. Bool (n,): `readout` errs at the last iterate.

    Both are readouts of the same network. Each step moves by `relative_step_size` of the radius along the normalised
    gradient in the space of points.
    """
    change = torch.zeros_like(attacked.preactivations)
    for _ in range(steps):
        at = (attacked.preactivations + change @ attacked.gram).requires_grad_()
        odds = compute_log_odds(at.relu() @ attacked.output_weights, attacked.labels)
        # With respect to `change` the gradient would be multiplied by G, and would not be that in the space of points.
        (ascent,) = torch.autograd.grad(odds.sum(), at)
        change = change + relative_step_size * radius * ascent / _norms(ascent, attacked.gram)
        change = change * (radius / _norms(change, attacked.gram)).clamp(max=1)
    return readout.is_wrong(readout.preactivations + change @ readout.gram)


def _norms(combination: Tensor, gram: Tensor) -> Tensor:
    """The L2 norm (n, 1) of W^T a for each a (n, N)."""
    return (combination * (combination @ gram)).sum(dim=1, keepdim=True).clamp(min=MIN_SQUARED_NORM).sqrt()


def draw_test_points(task: Task, dimension: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """The noise (n, d) and the clusters (n,) of `count` fresh points."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "test", dimension))
    return torch.randn(count, dimension, generator=generator), cluster_indices(count, task.clusters)


def make_readouts(two: Network, many: Network, task: Task, dimension: int, count: int, seed: int) -> dict[str, Readout]:
    """The readouts of the trained networks and of f_robust at `count` fresh points."""
    noise, clusters = draw_test_points(task, dimension, count, seed)
    side = sides(clusters, task.positive)
    robust = robust_network(task.clusters, task.positive, dimension)
    return {
        TWO_CLASSES: make_readout(two, noise, clusters, side, two.output_weights),
        OWN_CLASSES: make_readout(many, noise, clusters, clusters, many.output_weights),
        SUMMED: make_readout(many, noise, clusters, side, summed_output_weights(task, many.weights)),
        ROBUST: make_readout(robust, noise, clusters, side, robust.output_weights),
    }


def measure(
    run: Run,
    *,
    clusters: int,
    dimension: int,
    samples: int,
    neurons: int,
    deviation: float,
    learning_rate: float,
    steps: int,
    test_samples: int,
    relative_radii: Sequence[float],
    pgd_steps: int,
    pgd_relative_step_size: float,
    seed: int,
    positive_share: float = 0.5,
) -> Sequence[Mapping[str, str | int | float]]:
    """Rows (network, attack, radius over sqrt(d), accuracy in [0, 1]).

    An attack also counts as successful where it succeeded at a smaller radius.
    """
    positive = count_positive(clusters, positive_share)
    task = Task(K_CLASSES, clusters, neurons, positive)
    two, many = train_networks(
        [Task(TWO_CLASSES, clusters, neurons, positive), task],
        dimension=dimension,
        samples=samples,
        deviation=deviation,
        learning_rate=learning_rate,
        steps=steps,
        seed=seed,
    )
    found = make_readouts(two, many, task, dimension, test_samples, seed)
    rows: list[Mapping[str, str | int | float]] = []
    for name, readout in found.items():
        least = least_radii(readout)
        attacked = {PGD: readout, **({PGD_CLASSES: found[OWN_CLASSES]} if name == SUMMED else {})}
        broken = {attack: readout.is_wrong(readout.preactivations) for attack in attacked}
        for relative in sorted(relative_radii):
            radius = relative * math.sqrt(dimension)
            accuracies = {LEAST: float((least > radius).double().mean())}
            for attack, at in attacked.items():
                withstanding = ~broken[attack]
                if radius > 0:
                    broken[attack][withstanding] = pgd(
                        *(readout.select(withstanding), at.select(withstanding), radius),
                        steps=pgd_steps,
                        relative_step_size=pgd_relative_step_size,
                    )
                accuracies[attack] = float((~broken[attack]).double().mean())
            rows += [
                {"network": name, "attack": attack, "relative_radius": relative, "accuracy": accuracy}
                for attack, accuracy in accuracies.items()
            ]
            run.progress(len(rows), len(found) * len(relative_radii) * 2 + len(relative_radii))
    return rows
