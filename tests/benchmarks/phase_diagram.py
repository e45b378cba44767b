"""The phase diagram of the toy linear model: all cells together, beside one after another."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from robustfeatures.theory.toy_linear_model import (
    TrainingSets,
    closed_form,
    descend,
    draw_training_sets,
    largest_rate,
    zero_weights,
)
from tests.benchmarks.timing import side_by_side

CPU = torch.device("cpu")
P, RATE = 0.1, 0.8


def phase_diagram(cells: int, examples: int, steps: int, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds for `cells` training sets of `examples`, each given `steps` steps of gradient descent.

    First simulated in one batch ("ours"), then by the closed form of the same weights; each beside the simulation cell
    by cell on the matrix A.
    """
    side = round(cells**0.5)
    k, eps = (
        axis.ravel() for axis in np.meshgrid(np.geomspace(1.05, 50, cells // side), np.geomspace(0.02, 0.98, side))
    )
    data = draw_training_sets(np.random.default_rng(0), np.full(len(k), P), k, eps, examples=examples, dimension=10**12)
    rate = torch.from_numpy(RATE * largest_rate(eps, examples))
    batched = descend(data, zero_weights(data), rate, steps).first
    # The ways must agree before they are compared.
    torch.testing.assert_close(batched[:2], one_by_one(data, rate, steps, cells=2))
    torch.testing.assert_close(batched, closed_form(data, rate, steps))
    ways = {
        "simulated": lambda: descend(data, zero_weights(data), rate, steps),
        "closed form": lambda: closed_form(data, rate, steps),
        "plain loop": lambda: one_by_one(data, rate, steps, cells=len(k)),
    }
    times = side_by_side(ways, CPU, rounds)
    simulated, exact = (
        {"ours": times[name], "plain loop": times["plain loop"]} for name in ("simulated", "closed form")
    )
    return simulated, exact


def one_by_one(data: TrainingSets, rate: Tensor, steps: int, *, cells: int) -> Tensor:
    """(w1, w2) (cells, 2) of the first cells, each by gradient descent on its own matrix A (n, 2 + n)."""
    examples = data.labels.shape[1]
    found = []
    for cell in range(cells):
        noise = torch.nn.functional.one_hot(data.noise[cell], examples).double()
        matrix, labels = torch.cat([data.features[cell], noise], dim=1), data.labels[cell]
        weights = torch.zeros(2 + examples, dtype=torch.float64)
        for _ in range(steps):
            weights = weights + rate[cell] / examples * (matrix.T @ (labels - matrix @ weights))
        found.append(weights[:2])
    return torch.stack(found)
