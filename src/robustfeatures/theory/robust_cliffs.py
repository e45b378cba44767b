"""Where robust accuracy falls to one half, over the number of clusters and the dimension (feature-averaging-2025).

By the theorem the cliffs are of the order of sqrt(d/k) for averaged and sqrt(d) for decoupled features, a factor of
sqrt(k). The paper shows only k = 10 and d = 3072. One call trains the networks of all k for one d together (see
`feature_averaging`). The cliff is the median of the least perturbation over fresh points (see `robust_radius`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from robustfeatures.theory.feature_averaging import Task, train_networks
from robustfeatures.theory.ideal_radii import K_CLASSES, TWO_CLASSES, ideal_radius
from robustfeatures.theory.robust_radius import least_radii, make_readouts

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run


def measure(
    run: Run,
    *,
    clusters: Sequence[int],
    dimension: int,
    samples: int,
    neurons: int,
    deviation: float,
    learning_rate: float,
    steps: int,
    test_samples: int,
    seed: int,
) -> Sequence[Mapping[str, str | int | float]]:
    """Rows (clusters, dimension, network, accuracy in [0, 1], relative_cliff, ideal): cliffs over sqrt(d)."""
    tasks = [Task(kind, count, neurons, count // 2) for count in clusters for kind in (TWO_CLASSES, K_CLASSES)]
    networks = train_networks(
        tasks,
        dimension=dimension,
        samples=samples,
        deviation=deviation,
        learning_rate=learning_rate,
        steps=steps,
        seed=seed,
    )
    rows: list[Mapping[str, str | int | float]] = []
    for two, many, task in zip(networks[::2], networks[1::2], tasks[1::2], strict=True):
        for name, readout in make_readouts(two, many, task, dimension, test_samples, seed).items():
            least = least_radii(readout)
            rows.append(
                {
                    "clusters": task.clusters,
                    "dimension": dimension,
                    "network": name,
                    "accuracy": float((least > 0).double().mean()),
                    "relative_cliff": float(least.median()) / math.sqrt(dimension),
                    "ideal": ideal_radius(name, task.clusters, dimension) / math.sqrt(dimension),
                }
            )
        run.progress(len(rows), 4 * len(clusters))
    return rows
