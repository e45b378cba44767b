"""Networks trained on clusters with orthogonal centres: averaged and decoupled features (feature-averaging-2025).

Data: k clusters with orthogonal centres of norm sqrt(d), x = mu_j + xi, xi ~ N(0, I_d). The first half of the clusters
is the positive class, J_+. Data and initialisation do not change in law when the axes are rotated, so here
mu_j = sqrt(d) e_j.

Network of two classes, second layer fixed, logistic loss:

    f(x) = 1/m sum over r of ReLU(<w_(1,r), x> + b_(1,r)) - 1/m sum over r of ReLU(<w_(-1,r), x> + b_(-1,r)).

Theorem (Feature Averaging): trained by gradient descent from a small initialisation, w_(s,r) is its initial value plus
the sum of lambda_(s,r,j) mu_j plus noise terms, with lambda_(s,r,j) >= Omega(1) and of one order for all clusters j of
the side s, and at most o(1) for those of the other side; accuracy is 1 - o(1).
Theorem (Feature Decoupling): trained with cross-entropy to tell the k clusters apart, f_j has lambda_(j,j) = Omega(1)
and lambda_(j,i) = o(1) for i != j.

The slides give f_j one neuron. Its neuron is then dead for its whole cluster at the start with probability
1 / (n/k + 1): for weights drawn from a centred normal law the products with mu_j and with the noise of each of the n/k
points are independent of equal variance, and all n/k sums are negative exactly when the first is the least of
n/k + 1 exchangeable numbers (in sign reversed). Here f_j is the mean over m neurons, as in the network of two classes.

What is computed. A network of two classes is one of two outputs, f and 0, under cross-entropy; so every network is
outputs = ReLU(x W^T + b) V with fixed votes V. In n steps the weights stay in the span of their start and of the data,
W = W_0 + A^T X. One step on A needs the n x n matrix X X^T alone, and

    X X^T = N N^T + M C^T + C M^T + d C C^T,    N the noise, C the one-hot clusters, M = sqrt(d) N[:, :k],

so that networks for every k share N N^T and each step is one matrix product for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from robustfeatures.engine.randomness import derive_seed
from robustfeatures.theory.ideal_radii import K_CLASSES, TWO_CLASSES

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run


@dataclass(frozen=True)
class Task:
    """A network to train: k clusters, told apart by side (2-class) or one by one (k-class), and m neurons a class."""

    kind: str
    clusters: int
    neurons: int

    def votes(self, like: Tensor) -> Tensor:
        """V (neurons, outputs): the mean of its neurons for each class; for two classes the difference, and 0."""
        classes = 2 if self.kind == TWO_CLASSES else self.clusters
        votes = torch.eye(classes, dtype=like.dtype).repeat_interleave(self.neurons, dim=0) / self.neurons
        if self.kind == TWO_CLASSES:
            votes = torch.stack([votes[:, 0] - votes[:, 1], torch.zeros(len(votes), dtype=like.dtype)], dim=1)
        return votes

    def labels(self, clusters: Tensor) -> Tensor:
        """The class of points of these clusters (n,)."""
        return sides(clusters, self.clusters) if self.kind == TWO_CLASSES else clusters


@dataclass(frozen=True)
class Network:
    """Weights (N, d), biases (N,), votes (N, outputs), and lambda (N, k), what each neuron holds of each centre."""

    weights: Tensor
    biases: Tensor
    votes: Tensor
    coefficients: Tensor

    def products(self, noise: Tensor, clusters: Tensor) -> Tensor:
        """x W^T + b (n, N) at x = mu of the clusters (n,) plus noise (n, d)."""
        scale = math.sqrt(noise.shape[1])
        return noise @ self.weights.T + scale * self.weights[:, clusters].T + self.biases

    def cosines(self) -> Tensor:
        """The cosine of each neuron's weight with each centre (N, k)."""
        norms: Tensor = self.weights.norm(dim=1, keepdim=True)
        return self.weights[:, : self.coefficients.shape[1]] / norms


def clusters_of(count: int, clusters: int) -> Tensor:
    """The cluster of each of `count` points, in turns."""
    return torch.arange(count) % clusters


def sides(clusters: Tensor, count: int) -> Tensor:
    """0 for J_+, the first half of `count` clusters, and 1 for J_-."""
    return (2 * clusters >= count).long()


def train(
    noise: Tensor, tasks: Sequence[Task], starts: Sequence[tuple[Tensor, Tensor]], *, learning_rate: float, steps: int
) -> list[Network]:
    """Gradient descent on all points at once, for several networks together.

    noise: (n, d), N above; the points of each task are its centres, in turns, plus this. starts: W_0 (N, d) and b_0
    (N,) of each; a network of k classes has no biases, its b_0 is zero and stays.
    """
    gram = noise @ noise.T
    parts = [_Part(noise, task, *start) for task, start in zip(tasks, starts, strict=True)]
    columns = [part.products.shape[1] for part in parts]
    for _ in range(steps):
        backward = [part.backward() for part in parts]
        shared = torch.split_with_sizes(gram @ torch.cat(backward, dim=1), columns, dim=1)
        for part, gradient, product in zip(parts, backward, shared, strict=True):
            part.descend(gradient, product, learning_rate)
    return [part.network(noise) for part in parts]


class _Part:
    """One of the networks in training: its products x W^T + b at all points, and A."""

    def __init__(self, noise: Tensor, task: Task, weights: Tensor, biases: Tensor) -> None:
        count, self.dimension = noise.shape
        clusters = clusters_of(count, task.clusters)
        self.biased = task.kind == TWO_CLASSES
        self.weights, self.biases = weights, biases
        self.votes = task.votes(noise)
        self.one_hot = one_hot(clusters, task.clusters).to(noise.dtype)
        self.centred = math.sqrt(self.dimension) * noise[:, : task.clusters]
        self.wanted = one_hot(task.labels(clusters), self.votes.shape[1]).to(noise.dtype)
        self.combination = torch.zeros(count, len(weights), dtype=noise.dtype)
        self.products = noise @ weights.T + self.one_hot @ (math.sqrt(self.dimension) * weights[:, : task.clusters].T)
        self.products += biases

    def backward(self) -> Tensor:
        """The gradient of the mean cross-entropy in the products (n, N)."""
        outputs = self.products.clamp(min=0) @ self.votes
        residual = (outputs.softmax(dim=1) - self.wanted) / len(outputs)
        return (residual @ self.votes.T) * (self.products > 0)

    def descend(self, gradient: Tensor, noise_product: Tensor, learning_rate: float) -> None:
        """One step, given N N^T times the gradient."""
        by_cluster = self.one_hot.T @ gradient
        change = noise_product + (self.centred + self.dimension * self.one_hot) @ by_cluster
        change += self.one_hot @ (self.centred.T @ gradient)
        if self.biased:
            total = gradient.sum(dim=0)
            change += total
            self.biases = self.biases - learning_rate * total
        self.combination -= learning_rate * gradient
        self.products -= learning_rate * change

    def network(self, noise: Tensor) -> Network:
        """W = W_0 + A^T X, put together."""
        coefficients = self.combination.T @ self.one_hot
        weights = self.weights + self.combination.T @ noise
        weights[:, : coefficients.shape[1]] += math.sqrt(self.dimension) * coefficients
        return Network(weights, self.biases, self.votes, coefficients)


def start(
    task: Task, dimension: int, deviation: float, generator: torch.Generator, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """W_0 (N, d) and b_0 (N,), all entries N(0, deviation^2); a network of k classes has no biases."""
    neurons = len(task.votes(torch.empty(0)))
    weights = deviation * torch.randn(neurons, dimension, generator=generator, dtype=dtype)
    biases = deviation * torch.randn(neurons, generator=generator, dtype=dtype)
    return weights, biases if task.kind == TWO_CLASSES else torch.zeros_like(biases)


def trained(
    tasks: Sequence[Task],
    *,
    dimension: int,
    samples: int,
    deviation: float,
    learning_rate: float,
    steps: int,
    seed: int,
) -> list[Network]:
    """Networks trained on the same noise, everything drawn from `seed`, in float32."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "train", dimension))
    noise = torch.randn(samples, dimension, generator=generator)
    starts = [start(task, dimension, deviation, generator, noise.dtype) for task in tasks]
    return train(noise, tasks, starts, learning_rate=learning_rate, steps=steps)


def accuracy(network: Network, noise: Tensor, task: Task) -> float:
    """The share of points, centres in turns plus noise (n, d), whose class has the largest output."""
    clusters = clusters_of(len(noise), task.clusters)
    outputs = network.products(noise, clusters).clamp(min=0) @ network.votes
    return float((outputs.argmax(dim=1) == task.labels(clusters)).float().mean())


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
    seed: int,
) -> Sequence[Mapping[str, str | int | float]]:
    """Rows (network, neuron, centre, cosine, coefficient, accuracy); a neuron of the k-class network is a class, the
    mean over its neurons. Accuracy, on fresh points, is that of the whole network, in [0, 1]."""
    tasks = [Task(kind, clusters, neurons) for kind in (TWO_CLASSES, K_CLASSES)]
    found = trained(
        tasks,
        dimension=dimension,
        samples=samples,
        deviation=deviation,
        learning_rate=learning_rate,
        steps=steps,
        seed=seed,
    )
    generator = torch.Generator().manual_seed(derive_seed(seed, "test", dimension))
    noise = torch.randn(test_samples, dimension, generator=generator)
    rows: list[Mapping[str, str | int | float]] = []
    for task, network in zip(tasks, found, strict=True):
        together = 1 if task.kind == TWO_CLASSES else neurons
        cosines = network.cosines().reshape(-1, together, clusters).mean(dim=1)
        coefficients = network.coefficients.reshape(-1, together, clusters).mean(dim=1)
        reached = accuracy(network, noise, task)
        rows += [
            {
                "network": task.kind,
                "neuron": neuron,
                "centre": centre,
                "cosine": float(cosines[neuron, centre]),
                "coefficient": float(coefficients[neuron, centre]),
                "accuracy": reached,
            }
            for neuron in range(len(cosines))
            for centre in range(clusters)
        ]
    return rows
