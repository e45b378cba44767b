"""The explicit attack on averaged features, and the choice of biases (feature-averaging-2025).

Theorem (Averaged Features are Non-robust Features): "for the weights in a feature-averaging solution, for any choice of
bias b, the model has nearly zero delta-robust accuracy for perturbation radius delta = Omega(sqrt(d/k))". Its attack on
points of J_+ has the direction -sum over J_+ of mu_j + sum over J_- of mu_j; on points of J_- the opposite one.

With averaged weights, w_s = sum over J_s of mu_j, the attack of norm r moves the responses of x = mu_i, i in J_+, to

    <w_+, x> = d - |J_+| t,    <w_-, x> = |J_-| t,    t = r sqrt(d / k),

and those of J_- likewise with the sides exchanged. Without biases f changes its sign at t = d/k, r = sqrt(d/k), for any
sizes of the sides. This is the least perturbation (`ideal_radii`), so the direction is the best one.

With biases b_+ and b_-, a point of J_+ is right only if d - k t + b_+ - b_- > 0. A point of J_- is right only if
d - k t - b_+ + b_- > 0. The sum of both says that one side errs everywhere for r >= sqrt(d/k). The other side may
withstand. For a large b_+ the answer is always J_+, and the robust accuracy is the share of J_+ at every radius. So the
theorem needs more than it says. If all centres are right without attack, |b_+ - b_-| < d, and no point is robust at
r = 2 sqrt(d/k).

With a bias of its own for each neuron the response of a side is F_s(<w_s, x>), F_s non-decreasing. If all centres are
right, F_-(d) > F_+(0) and F_+(d) > F_-(0). For t = d / min(|J_+|, |J_-|) points of J_+ get at most F_+(0) - F_-(d) < 0,
and points of J_- likewise. So then no point is robust at r = sqrt(d k) / min(|J_+|, |J_-|), with equal sides again
2 sqrt(d/k).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.theory.feature_averaging import Network, Task, train_networks
from robustfeatures.theory.ideal_radii import TWO_CLASSES, count_positive
from robustfeatures.theory.robust_radius import Readout, draw_test_points, find_least, make_readout

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

TRAINED, ACCURATE, ALL = "trained biases", "biases with perfect accuracy", "all biases"
# The biases of both sides that are tried, over the mean response of a neuron to points of its side.
BIASES = torch.linspace(-2, 2, 17).tolist()
# The least clean accuracy that counts as perfect.
PERFECT = 0.99
HALVINGS = 25


def attack_direction(task: Task, dimension: int) -> Tensor:
    """The unit vector (d,) of the attack on points of J_+."""
    direction = torch.zeros(dimension)
    direction[: task.clusters] = 1 / math.sqrt(task.clusters)
    direction[: task.positive] *= -1
    return direction


def response_changes(network: Network, task: Task, labels: Tensor) -> Tensor:
    """The changes (n, N) of the pre-activations of points with these labels (n,) under the attack of norm 1."""
    change = (network.weights @ attack_direction(task, network.weights.shape[1])).double()
    return torch.where(labels[:, None] == 0, change, -change)


def crossing_radii(readout: Readout, changes: Tensor, largest: float) -> Tensor:
    """The radius (n,) at which each point becomes wrong along its `changes` (n, N); infinite beyond `largest`.

    Under the attack the responses of the own side fall and those of the other side rise, so a wrong point stays wrong.
    """

    def is_wrong(radii: Tensor) -> Tensor:
        return readout.is_wrong(readout.preactivations + radii[:, None] * changes)

    most = torch.full((len(changes),), largest).to(changes)
    return torch.where(is_wrong(0 * most), 0.0, find_least(is_wrong, most, halvings=HALVINGS))


def robust_accuracies(readout: Readout, changes: Tensor, radii: Tensor) -> Tensor:
    """The accuracy (R,) under the attack of each radius (R,)."""
    found = crossing_radii(readout, changes, float(radii.max()))
    return (found[:, None] > radii).double().mean(dim=0)


def accuracies_with_biases(
    network: Network, task: Task, readout: Readout, changes: Tensor, radii: Tensor
) -> tuple[Tensor, Tensor]:
    """The clean accuracy (B,) and those under attack (B, R), for each pair of `BIASES`, one for each side."""
    without = readout.preactivations - network.biases.double()
    side = torch.arange(2).repeat_interleave(task.neurons)
    scale = without[side == readout.labels[:, None]].mean()
    clean, robust = [], []
    for pair in itertools.product(BIASES, repeat=2):
        biased = replace(readout, preactivations=without + scale * torch.tensor(pair, dtype=scale.dtype)[side])
        clean.append((~biased.is_wrong(biased.preactivations)).double().mean())
        robust.append(robust_accuracies(biased, changes, radii))
    return torch.stack(clean), torch.stack(robust)


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
    seed: int,
    positive_share: float = 0.5,
) -> Sequence[Mapping[str, str | int | float]]:
    """Rows (biases, radius over sqrt(d), accuracy in [0, 1]) of the network of two classes under the explicit attack.

    biases: those of the trained network, or the largest accuracy over the biases that keep a perfect clean accuracy, or
    over all that are tried. At each radius the best biases are chosen anew. NaN if no biases keep a perfect accuracy.
    """
    task = Task(TWO_CLASSES, clusters, neurons, count_positive(clusters, positive_share))
    (network,) = train_networks(
        [task],
        dimension=dimension,
        samples=samples,
        deviation=deviation,
        learning_rate=learning_rate,
        steps=steps,
        seed=seed,
    )
    noise, at = draw_test_points(task, dimension, test_samples, seed)
    labels = task.labels(at)
    readout = make_readout(network, noise, at, labels, network.output_weights)
    changes = response_changes(network, task, labels)
    radii = math.sqrt(dimension) * torch.tensor(sorted(relative_radii), dtype=torch.float64)
    clean, robust = accuracies_with_biases(network, task, readout, changes, radii)
    accurate = robust[clean >= PERFECT]
    found = {
        TRAINED: robust_accuracies(readout, changes, radii),
        ACCURATE: accurate.amax(dim=0) if len(accurate) else torch.full_like(radii, torch.nan),
        ALL: robust.amax(dim=0),
    }
    return [
        {"biases": biases, "relative_radius": relative, "accuracy": float(accuracy)}
        for biases, accuracies in found.items()
        for relative, accuracy in zip(sorted(relative_radii), accuracies, strict=True)
    ]
