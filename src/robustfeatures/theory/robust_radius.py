"""How far points must be moved until a trained network on clusters errs (feature-averaging-2025).

The theorems and the radii of ideal networks are those of `ideal_radii`. Perturbations only matter in the span of the
weights: delta = W^T a changes the products by G a and has the norm sqrt(a^T G a), G = W W^T. So attacks work on N
numbers instead of d, to the same result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from robustfeatures.engine.randomness import derive_seed
from robustfeatures.theory.feature_averaging import Network, Task, clusters_of, sides, trained
from robustfeatures.theory.ideal_radii import K_CLASSES, OWN_CLASSES, ROBUST, SUMMED, TWO_CLASSES

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

LEAST = "least perturbation"
PGD = "PGD"
PGD_CLASSES = "PGD on the classes"
# Below this squared length a gradient is no direction.
FLOOR = 1e-30
HALVINGS = 20
# Rounds of the search for the nearest piece, and the shares of opposing neurons that it starts from.
ROUNDS = 6
SHARES = (0.0, 0.5, 1.0)


@dataclass(frozen=True)
class Readout:
    """A network as it is judged: products (n, N) at the test points, G (N, N), votes (N, outputs), labels (n,)."""

    products: Tensor
    gram: Tensor
    votes: Tensor
    labels: Tensor

    def at(self, chosen: Tensor) -> Readout:
        """The same for the points of this bool (n,) mask."""
        return replace(self, products=self.products[chosen], labels=self.labels[chosen])

    def wrong(self, products: Tensor) -> Tensor:
        """Bool (n,): the own output is not the only largest one."""
        outputs = products.clamp(min=0) @ self.votes
        own = outputs.gather(1, self.labels[:, None])
        return (outputs.scatter(1, self.labels[:, None], -torch.inf) >= own).any(dim=1)


def readout(network: Network, noise: Tensor, clusters: Tensor, labels: Tensor, votes: Tensor) -> Readout:
    """A network at the points of these clusters (n,) plus noise (n, d), in float64."""
    weights = network.weights.double()
    return Readout(network.products(noise, clusters).double(), weights @ weights.T, votes.double(), labels)


def summed_votes(task: Task, like: Tensor) -> Tensor:
    """Votes (N, 2) that sum the logits of the clusters of each side."""
    by_class = task.votes(like)
    return by_class @ one_hot(sides(torch.arange(task.clusters), task.clusters), 2).to(by_class.dtype)


def hand_built(clusters: int, dimension: int) -> Network:
    """f_robust over d, which changes no sign: one neuron mu_j / d for each cluster, with the bias -1/2."""
    weights = torch.eye(clusters, dimension) / math.sqrt(dimension)
    votes = one_hot(sides(torch.arange(clusters), clusters), 2).float()
    return Network(weights, torch.full((clusters,), -0.5), votes, torch.eye(clusters) / dimension)


def least_perturbation(products: Tensor, signs: Tensor, gram: Tensor, *, shares: Sequence[float] = SHARES) -> Tensor:
    """The L2 norms (n,) of the smallest perturbations found that bring sum of s_r ReLU(z_r) to zero or below.

    products: z (n, N). signs: s (n, N), positive for neurons that support the right answer. gram: (N, N) or (n, N, N).

    Where the active neurons are known the sum is linear, and the nearest point of its zero set is known in closed form;
    there other neurons are active, and so on. It starts from the neurons that are active now and each of `shares` of
    those that could speak against the right answer, the nearest to activity first; a gradient at the point sees none of
    them. Each norm is one at which the network itself errs, found by halving along the ray: an upper bound.
    """
    best = torch.where((signs * products.clamp(min=0)).sum(dim=1) <= 0, 0.0, torch.inf).to(products.dtype)
    against = torch.where(signs < 0, products, -torch.inf).argsort(dim=1, descending=True).argsort(dim=1)
    for share in shares:
        spoken = (signs < 0) & (against < share * (signs < 0).sum(dim=1, keepdim=True))
        active = ((products > 0) | spoken).to(products.dtype)
        for number in range(ROUNDS):
            gradient = signs * active
            change = -torch.matmul(gradient[:, None], gram).squeeze(1)
            squared = -(gradient * change).sum(dim=1).clamp(max=-FLOOR)
            nearest = ((gradient * products).sum(dim=1) / squared).clamp(min=0)
            best = torch.minimum(best, _crossing(products, signs, change, nearest) * squared.sqrt())
            now = (products + nearest[:, None] * change > 0).to(products.dtype)
            # The least perturbation may end where a supporting neuron turns on, and count it in part: a convex kink.
            active = torch.where(signs > 0, active + (now - active) * 2 / (number + 3), now)
    return best


def _crossing(products: Tensor, signs: Tensor, change: Tensor, nearest: Tensor) -> Tensor:
    """How far along z + t change the sum falls to zero, up to 2 nearest; infinite where it does not."""

    def wrong(at: Tensor) -> Tensor:
        return (signs * (products + at[:, None] * change).clamp(min=0)).sum(dim=1) <= 0

    low, high = torch.zeros_like(nearest), 2 * nearest
    found = wrong(high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = wrong(middle)
        low, high = torch.where(below, low, middle), torch.where(below, middle, high)
    return torch.where(found, high, torch.inf)


def least_radii(judged: Readout) -> Tensor:
    """The least perturbation (n,) that makes another output as large as the own one; 0 for what is wrong already."""
    outputs = judged.votes.shape[1]
    found = torch.full((len(judged.labels),), torch.inf, dtype=judged.products.dtype)
    own = judged.votes.T[judged.labels]
    for shift in range(1, outputs):
        signs = own - judged.votes.T[(judged.labels + shift) % outputs]
        found = torch.minimum(found, _among_those_concerned(judged, signs))
    return found


def _among_those_concerned(judged: Readout, signs: Tensor) -> Tensor:
    """The least perturbations, with the neurons that have no say left out."""
    concerned = signs != 0
    width = int(concerned.sum(dim=1).amax())
    if width == signs.shape[1]:
        return least_perturbation(judged.products, signs, judged.gram)
    chosen = concerned.long().argsort(dim=1, descending=True, stable=True)[:, :width]
    gram = judged.gram[chosen[:, :, None], chosen[:, None, :]]
    # The opposing neurons are those of one class, which are nearly one neuron.
    return least_perturbation(judged.products.gather(1, chosen), signs.gather(1, chosen), gram, shares=(0.0, 1.0))


def pgd(judged: Readout, attacked: Readout, radius: float, *, steps: int, relative_step_size: float) -> Tensor:
    """Bool (n,): `judged` errs at the last iterate of projected gradient ascent on the cross-entropy of `attacked`.

    Both are read-outs of the same network. Each step moves by `relative_step_size` of the radius along the normalised
    gradient in the space of points.
    """
    wanted = one_hot(attacked.labels, attacked.votes.shape[1]).to(attacked.products.dtype)
    change = torch.zeros_like(attacked.products)
    for _ in range(steps):
        at = attacked.products + change @ attacked.gram
        residual = (at.clamp(min=0) @ attacked.votes).softmax(dim=1) - wanted
        ascent = (residual @ attacked.votes.T) * (at > 0)
        change = change + relative_step_size * radius * ascent / _norms(ascent, attacked.gram)
        change = change * (radius / _norms(change, attacked.gram)).clamp(max=1)
    return judged.wrong(judged.products + change @ judged.gram)


def _norms(combination: Tensor, gram: Tensor) -> Tensor:
    """The L2 norm (n, 1) of W^T a for each a (n, N)."""
    return (combination * (combination @ gram)).sum(dim=1, keepdim=True).clamp(min=FLOOR).sqrt()


def readouts(two: Network, many: Network, task: Task, dimension: int, count: int, seed: int) -> dict[str, Readout]:
    """The networks as they are judged, at `count` fresh points."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "test", dimension))
    noise = torch.randn(count, dimension, generator=generator)
    clusters = clusters_of(count, task.clusters)
    side = sides(clusters, task.clusters)
    robust = hand_built(task.clusters, dimension)
    return {
        TWO_CLASSES: readout(two, noise, clusters, side, two.votes),
        OWN_CLASSES: readout(many, noise, clusters, clusters, many.votes),
        SUMMED: readout(many, noise, clusters, side, summed_votes(task, many.weights)),
        ROBUST: readout(robust, noise, clusters, side, robust.votes),
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
) -> Sequence[Mapping[str, str | int | float]]:
    """Rows (network, attack, radius over sqrt(d), accuracy in [0, 1]); an attack succeeds where a smaller one did."""
    task = Task(K_CLASSES, clusters, neurons)
    two, many = trained(
        [Task(TWO_CLASSES, clusters, neurons), task],
        dimension=dimension,
        samples=samples,
        deviation=deviation,
        learning_rate=learning_rate,
        steps=steps,
        seed=seed,
    )
    found = readouts(two, many, task, dimension, test_samples, seed)
    rows: list[Mapping[str, str | int | float]] = []
    for name, judged in found.items():
        least = least_radii(judged)
        attacked = {PGD: judged, **({PGD_CLASSES: found[OWN_CLASSES]} if name == SUMMED else {})}
        broken = {attack: judged.wrong(judged.products) for attack in attacked}
        for relative in sorted(relative_radii):
            radius = relative * math.sqrt(dimension)
            accuracies = {LEAST: float((least > radius).double().mean())}
            for attack, at in attacked.items():
                standing = ~broken[attack]
                if radius > 0:
                    broken[attack][standing] = pgd(
                        *(judged.at(standing), at.at(standing), radius),
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
