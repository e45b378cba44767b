"""Trained two-class networks `linear`: their accuracy in the exact worst case, weights, and objective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from robustfeatures.measurements.linear import of_network
from robustfeatures.measurements.linear_rows import Row, pixel_rows, rows_of

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

SOLVER = "gradient descent"


def measure(run: Run, *, eps: float, decay: float) -> Sequence[Row]:
    """Rows of the inputs "standard" and "adversarial", two networks, on the input "data"."""
    rows: list[Row] = []
    for training in ("standard", "adversarial"):
        found = of_network(run.network(training))
        pixels = len(found.weights)
        rows += rows_of(found, run, training=training, solver=SOLVER, eps=eps, decay=decay, pixels=pixels)
        rows += pixel_rows(found.weights, "weight", training=training, solver=SOLVER)
    run.progress(2, 2)
    return rows
