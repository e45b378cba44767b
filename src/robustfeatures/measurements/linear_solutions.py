"""The best linear classifiers of two classes: standard, adversarial, and on the most correlated pixels alone.

at-odds-2019, Appendix E. The standard ones are scikit-learn's, the adversarial one solves the closed form of
`measurements.linear`; neither is trained, so both tell how far gradient descent has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from robustfeatures.measurements.linear import Linear, Problem, correlations, solution
from robustfeatures.measurements.linear_rows import Row, pixel_rows, problem, rows_of

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run


def standard_solution(given: Problem, kept: NDArray[np.int64]) -> Linear:
    """The classifier of least objective at radius 0 whose weights are zero but for the pixels `kept`."""
    inner = (given.images[:, kept] - given.mean[kept]) / given.std[kept]
    # The bias is held back as the weights are, so it is one of them.
    columns = np.concatenate([inner, np.ones((len(inner), 1))], axis=1)
    strength = 2 / (len(inner) * given.decay)
    model = LogisticRegression(C=strength, fit_intercept=False, tol=1e-8, max_iter=20_000)
    found = model.fit(columns, given.labels).coef_[0]
    weights = np.zeros(given.images.shape[1])
    weights[kept] = found[:-1] / given.std[kept]
    return Linear(weights, float(found[-1] - weights @ given.mean))


def measure(run: Run, *, eps: float, decay: float, fractions: Sequence[float]) -> Sequence[Row]:
    """Rows of the input "data": both best classifiers, the correlations, and a standard one per share of the pixels."""
    standard, adversarial = problem(run, eps=0.0, decay=decay), problem(run, eps=eps, decay=decay)
    correlated = correlations(standard.images, standard.labels)
    order = np.argsort(-correlated, kind="stable")
    shares = sorted({max(1, round(fraction * len(order))) for fraction in fractions} | {len(order)})
    rows = list(pixel_rows(correlated, "correlation", training="", solver=""))
    for done, pixels in enumerate(shares):
        found = standard_solution(standard, order[:pixels])
        rows += rows_of(found, run, training="standard", solver="exact", eps=eps, decay=decay, pixels=pixels)
        run.progress(done + 1, len(shares) + 1)
    # The largest share is of all pixels.
    rows += pixel_rows(found.weights, "weight", training="standard", solver="exact")
    robust = solution(adversarial)
    rows += pixel_rows(robust.weights, "weight", training="adversarial", solver="exact")
    everything = len(order)
    rows += rows_of(robust, run, training="adversarial", solver="exact", eps=eps, decay=decay, pixels=everything)
    run.progress(len(shares) + 1, len(shares) + 1)
    return rows
