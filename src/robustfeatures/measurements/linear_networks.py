"""Trained networks `linear` with two classes: their exact robust accuracy, weights and objective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from robustfeatures.measurements.linear import to_linear_classifier
from robustfeatures.measurements.linear_rows import Row, describe_classifier, describe_pixels

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

SOLVER = "gradient descent"


def measure(run: Run, *, eps: float, decay: float) -> Sequence[Row]:
    """Return the rows of the networks in the inputs "standard" and "adversarial" on the input "data"."""
    rows: list[Row] = []
    for training in ("standard", "adversarial"):
        classifier = to_linear_classifier(run.network(training))
        pixels = len(classifier.weights)
        rows += describe_classifier(
            classifier, run, training=training, solver=SOLVER, eps=eps, decay=decay, pixels=pixels
        )
        rows += describe_pixels(classifier.weights, "weight", training=training, solver=SOLVER)
    run.progress(2, 2)
    return rows
