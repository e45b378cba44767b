"""Gradient descent on a toy linear model: two-pathways-2021, Section 5 and Appendix A.

y is uniform in {-1, 1}, q in {3, ..., d}; l1 is -1 with probability p and l2 with probability p / k, else 1, where
0 < p < 1/2 and k > 1; x = y l1 e1 + eps y l2 e2 + e_q. A linear classifier starts at 0 and descends the squared loss
|B - A w|^2 / (2 n) over n examples at rate eta.

Theorem 1. If eps <= sqrt((1 - 2p) / (1 - 2p/k)), then after the first step, with high probability, w1 >= eps w2 and
the population accuracy is 1 - p.
Theorem 2. If eta <= 2 / (1 + eps^2 + 1/n), then as the steps go to infinity the sample accuracy goes to 1 and, with
high probability, the population accuracy to 1 - p/k if k >= k_t, and to 1 - p if k < k_t, where as printed
k_t = [2p(1 + n eps^2) - 2p(1 - eps^2)] / [2p(1 + n eps^2) - (1 - eps^2)].

Our derivation. Let s and r be the first two columns of A, and U = [s r]. Let all q of the training set be distinct, so
that A A' = I + U U'. Then (w1, w2) = U'c with w = A'c, and one step moves it by (eta/n) (U'B - (I + U'U) (w1, w2)):
after t steps it is h_t(I + U'U) U'B with h_t(z) = (1 - (1 - eta z / n)^t) / z, and in the end (I + U'U)^-1 U'B. With
a = s'B/n, b = r'B/(n eps), beta = s'r/(n eps), the non-robust feature wins, eps w2 > w1, exactly if

    eps^2 b - a + n eps^2 (b - a) (1 + beta) > 0,

where a -> 1 - 2p, b -> 1 - 2p/k, beta -> a b as n grows. This is a quadratic in p/k, whose smaller root gives k_t.
The printed threshold differs in two ways.
- Our copy of the text has (1 - eps), but the last line of the proof needs (1 - eps^2): an exponent was lost.
- The proof has 2 p n^2 eps^2, but 1 + beta = 2 - O(p) gives 4 p n^2 eps^2. The printed k_t is the root of the
  expression above to first order in p, with 1 + beta replaced by 1. To first order k_t is
  [2p(1 + 2n eps^2) - 2p(1 - eps^2)] / [2p(1 + 2n eps^2) - (1 - eps^2)]: n eps^2 counts twice. So the true threshold
  is lower, and it exists for about half as large n eps^2. The dropped terms in p^2 also matter if p is not small.
Moreover, the proof's beta = 1 - p(k + 1)/k + 4p^2/k lacks a factor 2 in its second term, its second eigenvalue
1 + n eps^2 (1 + beta^2) has the wrong sign before beta^2, and s'r = n beta should read n eps beta.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustfeatures.engine.randomness import make_generator

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TrainingSets:
    """Training sets, one per cell: labels (cells, n), features (cells, n, 2), noise (cells, n).

    Labels are -1 or 1, features the first two coordinates of x. `noise` numbers the noise coordinates
    of a set from 0. Unused coordinates keep the weight 0.
    """

    labels: Tensor
    features: Tensor
    noise: Tensor


@dataclass(frozen=True)
class Weights:
    """Learned weights: robust and non-robust weight (cells, 2), noise weights (cells, n)."""

    first: Tensor
    noise: Tensor


def draw_training_sets(
    generator: np.random.Generator, p: Array, k: Array, eps: Array, *, examples: int, dimension: int
) -> TrainingSets:
    """Draw one training set of `examples` in `dimension` coordinates per cell; p, k and eps are (cells,)."""
    shape = (len(p), examples)
    labels = generator.choice([-1.0, 1.0], shape)
    signs = [np.where(generator.random(shape) < share[:, None], -1.0, 1.0) for share in (p, p / k)]
    features = np.stack([labels * signs[0], eps[:, None] * labels * signs[1]], axis=2)
    coordinates = generator.integers(3, dimension + 1, shape)
    order = np.argsort(coordinates, axis=1)
    ranked = np.take_along_axis(coordinates, order, axis=1)
    noise = np.empty(shape, dtype=np.int64)
    fresh = np.diff(ranked, axis=1, prepend=ranked[:, :1]) > 0
    np.put_along_axis(noise, order, fresh.cumsum(axis=1), axis=1)
    return TrainingSets(torch.from_numpy(labels), torch.from_numpy(features), torch.from_numpy(noise))


def largest_rate(eps: Array, examples: int) -> Array:
    """The largest eta of Theorem 2, 2 / (1 + eps^2 + 1/n): eta is at most 2 n over each eigenvalue of A A'."""
    found: Array = 2 / (1 + eps**2 + 1 / examples)
    return found


def zero_weights(data: TrainingSets) -> Weights:
    """Weights of 0."""
    return Weights(torch.zeros_like(data.features[:, 0]), torch.zeros_like(data.labels))


def outputs(data: TrainingSets, weights: Weights) -> Tensor:
    """A w (cells, n)."""
    robust, nonrobust = (data.features[..., column] * weights.first[:, column, None] for column in range(2))
    return robust + nonrobust + weights.noise.gather(1, data.noise)


def descend(data: TrainingSets, weights: Weights, rate: Tensor, steps: int) -> Weights:
    """Take `steps` steps of gradient descent on |B - A w|^2 / (2 n) in all cells together; rate (cells,)."""
    share = (rate / data.labels.shape[1])[:, None]
    first, noise = weights.first, weights.noise
    columns = data.features.transpose(1, 2).contiguous()
    for _ in range(steps):
        residuals = data.labels - torch.einsum("cf,cfn->cn", first, columns) - noise.gather(1, data.noise)
        first = first + share * torch.einsum("cn,cfn->cf", residuals, columns)
        noise = noise.scatter_add(1, data.noise, share * residuals)
    return Weights(first, noise)


def closed_form(data: TrainingSets, rate: Tensor, steps: float) -> Tensor:
    """(w1, w2) (cells, 2) after `steps` steps or infinitely many, if no two examples share a noise coordinate."""
    examples = data.labels.shape[1]
    gram = data.features.transpose(1, 2) @ data.features + torch.eye(2, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(gram)
    contracted = (1 - rate[:, None] * values / examples) ** steps if np.isfinite(steps) else torch.zeros_like(values)
    target = (data.features.transpose(1, 2) @ data.labels[..., None]).squeeze(2)
    turned = ((1 - contracted) / values) * (vectors.transpose(1, 2) @ target[..., None]).squeeze(2)
    found: Tensor = (vectors @ turned[..., None]).squeeze(2)
    return found


def population_accuracy(weights: Weights, p: Array, k: Array, eps: Array, dimension: int) -> Array:
    """The exact accuracy (cells,) on the distribution: over l1, l2, y and the d - 2 noise coordinates.

    An output of exactly 0 counts as wrong.
    """
    first = weights.first.numpy()
    found = np.zeros(len(p))
    for (robust, chance_1), (nonrobust, chance_2) in (
        (one, two) for one in ((1, 1 - p), (-1, p)) for two in ((1, 1 - p / k), (-1, p / k))
    ):
        margins = robust * first[:, 0] + nonrobust * eps * first[:, 1]
        seen = sum((margins[:, None] + sign * weights.noise.numpy() > 0).sum(axis=1) for sign in (1, -1)) / 2
        # Coordinates that no example uses, and unused places of `noise`, have the weight 0.
        unseen = dimension - 2 - weights.noise.shape[1]
        found += chance_1 * chance_2 * (seen + unseen * (margins > 0)) / (dimension - 2)
    return found


def advantage(p: Array, k: Array, eps: Array, examples: int) -> Array:
    """A number that is positive exactly if eps w2 > w1 in the limit of many steps and examples."""
    a, b = 1 - 2 * p, 1 - 2 * p / k
    found: Array = eps**2 * b - a + examples * eps**2 * (b - a) * (1 + a * b)
    return found


def threshold(p: Array, eps: Array, examples: int) -> Array:
    """The derived threshold: the non-robust feature wins in the limit for larger k. Infinite if it never wins."""
    a, square = 1 - 2 * p, eps**2
    # `advantage` with b = 1 - 2 z, z = p / k, is quadratic z^2 - linear z + constant.
    quadratic = 4 * examples * square * a
    linear = 2 * square * (1 + examples * (1 - a**2)) + quadratic
    constant = square * (1 + examples * (1 - a**2)) - a
    with np.errstate(divide="ignore"):
        # This form of the smaller root loses no digits where it is small.
        root = 2 * constant / (linear + np.sqrt(linear**2 - 4 * quadratic * constant))
        found: Array = np.where(constant > 0, p / np.maximum(root, 0), np.inf)
    return found


def printed_threshold(p: Array, eps: Array, examples: int, *, power: int) -> Array:
    """k_t as printed, with 1 - eps^power; the power is 2 in the proof and 1 in our copy of the text.

    Infinite where its denominator is not positive.
    """
    grown, rest = 2 * p * (1 + examples * eps**2), 1 - eps**power
    with np.errstate(divide="ignore"):
        found: Array = np.where(grown > rest, (grown - 2 * p * rest) / np.maximum(grown - rest, 0), np.inf)
    return found


def first_step_bound(p: Array, k: Array) -> Array:
    """The largest eps of Theorem 1."""
    found: Array = np.sqrt((1 - 2 * p) / (1 - 2 * p / k))
    return found


def limit_weights(data: TrainingSets) -> Weights:
    """The limit of gradient descent if no two examples share a noise coordinate: w_T = A'(A A')^-1 B."""
    first = closed_form(data, torch.ones(len(data.labels), dtype=torch.float64), float("inf"))
    explained = torch.einsum("cf,cnf->cn", first, data.features)
    return Weights(first, torch.zeros_like(data.labels).scatter_add(1, data.noise, data.labels - explained))


def trajectory(data: TrainingSets, rate: Tensor, steps: Sequence[int]) -> Iterator[tuple[float, Weights]]:
    """The weights of all cells after each of `steps` steps (rising), and in the limit (step infinity)."""
    weights, done = zero_weights(data), 0
    for step in steps:
        weights = descend(data, weights, rate, step - done)
        done = step
        yield step, weights
    yield float("inf"), limit_weights(data)


def measure(
    run: Run,
    *,
    seed: int,
    p: float,
    k: Sequence[float],
    eps: Sequence[float],
    examples: int,
    dimension: int,
    relative_rate: float,
    steps: Sequence[int],
) -> list[dict[str, str | int | float]]:
    """Simulate the grid k x eps: one row per cell and number of steps, and one for the limit in closed form.

    eta is `relative_rate` of Theorem 2's largest. Columns k, eps, step (infinity for the limit); robust_weight w1,
    nonrobust_weight eps w2; sample_accuracy and accuracy (on the distribution), shares.
    """
    grid = np.array([(each_k, each_eps) for each_k in k for each_eps in eps])
    chances, ratios, sizes = np.full(len(grid), p), grid[:, 0], grid[:, 1]
    generator = make_generator(seed, "toy linear model")
    data = draw_training_sets(generator, chances, ratios, sizes, examples=examples, dimension=dimension)
    rate = torch.from_numpy(relative_rate * largest_rate(sizes, examples))
    rows: list[dict[str, str | int | float]] = []
    for step, weights in trajectory(data, rate, steps):
        run.progress(len(rows), len(grid) * (len(steps) + 1))
        right = (outputs(data, weights) * data.labels > 0).double().mean(dim=1).numpy()
        columns = {
            "k": ratios,
            "eps": sizes,
            "step": np.full(len(grid), float(step)),
            "robust_weight": weights.first[:, 0].numpy(),
            "nonrobust_weight": sizes * weights.first[:, 1].numpy(),
            "sample_accuracy": right,
            "accuracy": population_accuracy(weights, chances, ratios, sizes, dimension),
        }
        rows += [dict(zip(columns, map(float, cell), strict=True)) for cell in zip(*columns.values(), strict=True)]
    return rows
