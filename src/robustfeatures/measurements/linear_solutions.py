"""The optimal linear classifiers of two classes: standard, adversarial, and on only the most correlated pixels.

at-odds-2019, Appendix E. The standard ones come from scikit-learn, and the adversarial ones from the closed forms in
`measurements.linear`. They are exact, so they show how close gradient descent comes to the optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from robustfeatures.measurements.linear import LinearClassifier, TrainingProblem, correlations, solve
from robustfeatures.measurements.linear_rows import Row, describe_classifier, describe_pixels, load_problem

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

ADVERSARIAL_UNCLIPPED = "adversarial, not clipped"


def solve_standard(problem: TrainingProblem, kept: NDArray[np.int64]) -> LinearClassifier:
    """Minimise the objective at radius 0 over the weights of the pixels `kept`; all other weights are 0."""
    inner = (problem.images[:, kept] - problem.mean[kept]) / problem.std[kept]
    # Weight decay applies to the bias too, so the bias is the weight of a constant column.
    columns = np.concatenate([inner, np.ones((len(inner), 1))], axis=1)
    strength = 2 / (len(inner) * problem.decay)
    model = LogisticRegression(C=strength, fit_intercept=False, tol=1e-8, max_iter=20_000)
    coefficients = model.fit(columns, problem.labels).coef_[0]
    weights = np.zeros(problem.images.shape[1])
    weights[kept] = coefficients[:-1] / problem.std[kept]
    return LinearClassifier(weights, float(coefficients[-1] - weights @ problem.mean))


def measure(run: Run, *, eps: float, decay: float, fractions: Sequence[float]) -> Sequence[Row]:
    """Return the rows of the optimal classifiers on the input "data", and the correlation of each pixel with the label.

    `fractions` are shares of the pixels. For each there is a standard classifier on the most correlated pixels. The
    adversarial classifiers have all pixels: one against each attack.
    """
    standard = load_problem(run, eps=0.0, decay=decay)
    usefulness = correlations(standard.images, standard.labels)
    order = np.argsort(-usefulness, kind="stable")
    counts = sorted({max(1, round(fraction * len(order))) for fraction in fractions} | {len(order)})
    rows = list(describe_pixels(usefulness, "correlation", training="", solver=""))
    for done, pixels in enumerate(counts):
        classifier = solve_standard(standard, order[:pixels])
        rows += describe_classifier(
            classifier, run, standard, training="standard", solver="exact", eps=eps, pixels=pixels
        )
        run.progress(done + 1, len(counts) + 2)
    # The last classifier has all pixels.
    rows += describe_pixels(classifier.weights, "weight", training="standard", solver="exact")
    for done, (training, clipped) in enumerate((("adversarial", True), (ADVERSARIAL_UNCLIPPED, False))):
        problem = load_problem(run, eps=eps, decay=decay, clipped=clipped)
        robust = solve(problem)
        rows += describe_pixels(robust.weights, "weight", training=training, solver="exact")
        rows += describe_classifier(robust, run, problem, training=training, solver="exact", eps=eps, pixels=len(order))
        run.progress(len(counts) + 1 + done, len(counts) + 2)
    return rows
