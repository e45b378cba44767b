"""Trained networks `linear` with two classes: their exact robust accuracy, weights and objective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from robustfeatures.measurements.linear import to_linear_classifier
from robustfeatures.measurements.linear_rows import Row, describe_classifier, describe_pixels, load_problem

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

SOLVER = "gradient descent"


def measure(run: Run, *, eps: float, decay: float) -> Sequence[Row]:
    """Return the rows of the networks in the inputs "standard" and "adversarial" on the input "data".

    The adversary of training has the radius `eps` and is clipped to [0, 1].
    """
    rows: list[Row] = []
    for training, radius in (("standard", 0.0), ("adversarial", eps)):
        classifier = to_linear_classifier(run.network(training))
        pixels, problem = len(classifier.weights), load_problem(run, eps=radius, decay=decay)
        rows += describe_classifier(classifier, run, problem, training=training, solver=SOLVER, eps=eps, pixels=pixels)
        rows += describe_pixels(classifier.weights, "weight", training=training, solver=SOLVER)
    run.progress(2, 2)
    return rows
