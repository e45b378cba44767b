"""Networks trained on clusters with orthogonal centres: averaged and decoupled features (feature-averaging-2025).

Data: k clusters with orthogonal centres of norm sqrt(d), x = mu_j + xi, xi ~ N(0, I_d). The first clusters are the
positive class, J_+, the others the negative class, J_-. A rotation of the axes does not change the distribution of data
and initialisation, so here mu_j = sqrt(d) e_j.

Network of two classes, second layer fixed, logistic loss:

    f(x) = 1/m sum over r of ReLU(<w_(1,r), x> + b_(1,r)) - 1/m sum over r of ReLU(<w_(-1,r), x> + b_(-1,r)).

Theorem (Feature Averaging): trained by gradient descent, w_(s,r) is its initial value plus the sum of
lambda_(s,r,j) mu_j plus noise terms. For all clusters j of the side s lambda_(s,r,j) is at least Omega(1) and of the
same order; for clusters of the other side it is at most o(1). The accuracy is 1 - o(1). The sides may be unequal:
|J_+| / |J_-| lies between 1/c and c. What a neuron learns adds lambda |mu_j|^2 = lambda d to its response to mu_j. The
loss is small once responses are of the order of 1, so lambda itself is of the order of 1/d. Here the theorem's orders
are those of lambda d.
Theorem (Feature Decoupling): if the network is trained with cross-entropy on the k clusters as classes, f_j has
lambda_(j,j) = Omega(1) and lambda_(j,i) = o(1) for i != j.

The slides give f_j one neuron. With probability 1 / (n/k + 1) this neuron starts dead on its whole cluster. The weights
are normal with mean 0, so their products with mu_j and with the noise of each of the n/k points are independent and of
equal variance. All n/k sums are negative exactly when minus the first product is the largest of n/k + 1 exchangeable
numbers. Here f_j is the mean over m neurons, as in the network of two classes.

Computation. A network of two classes has the outputs f and 0 under cross-entropy. So every network has the outputs
ReLU(x W^T + b) V with fixed output weights V. The weights stay in the span of their start and of the data,
W = W_0 + A^T X. One step on A needs only the n x n matrix X X^T, and

    X X^T = N N^T + M C^T + C M^T + d C C^T,    N the noise, C the one-hot clusters, M = sqrt(d) N[:, :k],

so networks for all k share N N^T, and one matrix product serves a step of all networks.
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
from robustfeatures.theory.ideal_radii import K_CLASSES, TWO_CLASSES, count_positive

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run


@dataclass(frozen=True)
class Task:
    """A network to train: k clusters, m neurons a class; classes are the sides (2-class) or the clusters (k-class).

    positive: the number of clusters in J_+.
    """

    kind: str
    clusters: int
    neurons: int
    positive: int

    def output_weights(self, like: Tensor) -> Tensor:
        """V (neurons, outputs): the mean over the neurons of each class; with two classes the difference, and 0."""
        classes = 2 if self.kind == TWO_CLASSES else self.clusters
        output_weights = torch.eye(classes, dtype=like.dtype).repeat_interleave(self.neurons, dim=0) / self.neurons
        if self.kind == TWO_CLASSES:
            output_weights = torch.stack(
                [output_weights[:, 0] - output_weights[:, 1], torch.zeros(len(output_weights), dtype=like.dtype)], dim=1
            )
        return output_weights

    def labels(self, clusters: Tensor) -> Tensor:
        """The class of points of these clusters (n,)."""
        return sides(clusters, self.positive) if self.kind == TWO_CLASSES else clusters

    def own_centres(self) -> Tensor:
        """Bool (N, k): whether a centre belongs to the class of a neuron."""
        classes = 2 if self.kind == TWO_CLASSES else self.clusters
        of_neurons = torch.arange(classes).repeat_interleave(self.neurons)
        return of_neurons[:, None] == self.labels(torch.arange(self.clusters))


@dataclass(frozen=True)
class Network:
    """Weights (N, d), biases (N,), output weights (N, outputs) and lambda (N, k), the coefficients of the centres."""

    weights: Tensor
    biases: Tensor
    output_weights: Tensor
    coefficients: Tensor

    def preactivations(self, noise: Tensor, clusters: Tensor) -> Tensor:
        """x W^T + b (n, N) at x = mu of the clusters (n,) plus noise (n, d)."""
        scale = math.sqrt(noise.shape[1])
        return noise @ self.weights.T + scale * self.weights[:, clusters].T + self.biases

    def cosines(self) -> Tensor:
        """The cosine of each neuron's weight with each centre (N, k)."""
        norms: Tensor = self.weights.norm(dim=1, keepdim=True)
        return self.weights[:, : self.coefficients.shape[1]] / norms


def cluster_indices(count: int, clusters: int) -> Tensor:
    """The cluster of each of `count` points: 0, 1, ..., k - 1, 0, 1 ..."""
    return torch.arange(count) % clusters


def sides(clusters: Tensor, positive: int) -> Tensor:
    """0 for the clusters of J_+, the first `positive` ones, and 1 for those of J_-."""
    return (clusters >= positive).long()


def gradient_descent(
    noise: Tensor, tasks: Sequence[Task], starts: Sequence[tuple[Tensor, Tensor]], *, learning_rate: float, steps: int
) -> list[Network]:
    """Train several networks together by full-batch gradient descent.

    noise: (n, d), N above. Point i of a task is centre i mod k plus row i of the noise. starts: W_0 (N, d) and b_0 (N,)
    of each network. A network of k classes has no biases: its b_0 is zero and stays zero.
    """
    gram = noise @ noise.T
    states = [_TrainingState(noise, task, *start) for task, start in zip(tasks, starts, strict=True)]
    columns = [state.preactivations.shape[1] for state in states]
    for _ in range(steps):
        gradients = [state.preactivation_gradient() for state in states]
        shared = torch.split_with_sizes(gram @ torch.cat(gradients, dim=1), columns, dim=1)
        for state, gradient, product in zip(states, gradients, shared, strict=True):
            state.descend(gradient, product, learning_rate)
    return [state.network(noise) for state in states]


class _TrainingState:
    """A network in training: its pre-activations x W^T + b at all points, and A."""

    def __init__(self, noise: Tensor, task: Task, weights: Tensor, biases: Tensor) -> None:
        count, self.dimension = noise.shape
        clusters = cluster_indices(count, task.clusters)
        self.biased = task.kind == TWO_CLASSES
        self.weights, self.biases = weights, biases
        self.output_weights = task.output_weights(noise)
        self.one_hot = one_hot(clusters, task.clusters).to(noise.dtype)
        self.centre_products = math.sqrt(self.dimension) * noise[:, : task.clusters]
        self.targets = one_hot(task.labels(clusters), self.output_weights.shape[1]).to(noise.dtype)
        self.combination = torch.zeros(count, len(weights), dtype=noise.dtype)
        self.preactivations = noise @ weights.T + self.one_hot @ (
            math.sqrt(self.dimension) * weights[:, : task.clusters].T
        )
        self.preactivations += biases

    def preactivation_gradient(self) -> Tensor:
        """The gradient of the mean cross-entropy with respect to the pre-activations (n, N)."""
        outputs = self.preactivations.clamp(min=0) @ self.output_weights
        residual = (outputs.softmax(dim=1) - self.targets) / len(outputs)
        return (residual @ self.output_weights.T) * (self.preactivations > 0)

    def descend(self, gradient: Tensor, noise_product: Tensor, learning_rate: float) -> None:
        """Take one step, given N N^T times the gradient."""
        by_cluster = self.one_hot.T @ gradient
        change = noise_product + (self.centre_products + self.dimension * self.one_hot) @ by_cluster
        change += self.one_hot @ (self.centre_products.T @ gradient)
        if self.biased:
            total = gradient.sum(dim=0)
            change += total
            self.biases = self.biases - learning_rate * total
        self.combination -= learning_rate * gradient
        self.preactivations -= learning_rate * change

    def network(self, noise: Tensor) -> Network:
        """The network with the weights W = W_0 + A^T X."""
        coefficients = self.combination.T @ self.one_hot
        weights = self.weights + self.combination.T @ noise
        weights[:, : coefficients.shape[1]] += math.sqrt(self.dimension) * coefficients
        return Network(weights, self.biases, self.output_weights, coefficients)


def draw_initial_weights(
    task: Task,
    dimension: int,
    deviation: float,
    generator: torch.Generator,
    dtype: torch.dtype,
    *,
    bias_deviation: float | None = None,
) -> tuple[Tensor, Tensor]:
    """W_0 (N, d) with entries N(0, deviation^2) and b_0 (N,) with N(0, bias_deviation^2), by default `deviation`.

    A network of k classes has no biases.
    """
    neurons = len(task.output_weights(torch.empty(0)))
    weights = deviation * torch.randn(neurons, dimension, generator=generator, dtype=dtype)
    bias_deviation = deviation if bias_deviation is None else bias_deviation
    biases = bias_deviation * torch.randn(neurons, generator=generator, dtype=dtype)
    return weights, biases if task.kind == TWO_CLASSES else torch.zeros_like(biases)


def train_networks(
    tasks: Sequence[Task],
    *,
    dimension: int,
    samples: int,
    deviation: float,
    learning_rate: float,
    steps: int,
    seed: int,
    bias_deviation: float | None = None,
) -> list[Network]:
    """Train networks on the same noise, in float32; `seed` decides the noise and the initial weights."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "train", dimension))
    noise = torch.randn(samples, dimension, generator=generator)
    starts = [
        draw_initial_weights(task, dimension, deviation, generator, noise.dtype, bias_deviation=bias_deviation)
        for task in tasks
    ]
    return gradient_descent(noise, tasks, starts, learning_rate=learning_rate, steps=steps)


def accuracy(network: Network, noise: Tensor, task: Task) -> float:
    """The accuracy, in [0, 1], on points with the noise (n, d)."""
    clusters = cluster_indices(len(noise), task.clusters)
    outputs = network.preactivations(noise, clusters).clamp(min=0) @ network.output_weights
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
    positive_share: float = 0.5,
    bias_deviation: float | None = None,
) -> Sequence[Mapping[str, str | int | float | bool]]:
    """Rows (network, neuron, centre, own, cosine, coefficient, accuracy).

    own: whether the centre belongs to the class of the neuron. coefficient: lambda d. For the k-class network "neuron"
    is a class, and the row holds the mean over its neurons. Accuracy, in [0, 1], is that of the whole network on fresh
    points.
    """
    positive = count_positive(clusters, positive_share)
    tasks = [Task(kind, clusters, neurons, positive) for kind in (TWO_CLASSES, K_CLASSES)]
    networks = train_networks(
        tasks,
        dimension=dimension,
        samples=samples,
        deviation=deviation,
        learning_rate=learning_rate,
        steps=steps,
        seed=seed,
        bias_deviation=bias_deviation,
    )
    generator = torch.Generator().manual_seed(derive_seed(seed, "test", dimension))
    noise = torch.randn(test_samples, dimension, generator=generator)
    rows: list[Mapping[str, str | int | float | bool]] = []
    for task, network in zip(tasks, networks, strict=True):
        neurons_per_row = 1 if task.kind == TWO_CLASSES else neurons
        cosines = network.cosines().reshape(-1, neurons_per_row, clusters).mean(dim=1)
        coefficients = dimension * network.coefficients.reshape(-1, neurons_per_row, clusters).mean(dim=1)
        own = task.own_centres()[::neurons_per_row]
        clean_accuracy = accuracy(network, noise, task)
        rows += [
            {
                "network": task.kind,
                "neuron": neuron,
                "centre": centre,
                "own": bool(own[neuron, centre]),
                "cosine": float(cosines[neuron, centre]),
                "coefficient": float(coefficients[neuron, centre]),
                "accuracy": clean_accuracy,
            }
            for neuron in range(len(cosines))
            for centre in range(clusters)
        ]
    return rows
