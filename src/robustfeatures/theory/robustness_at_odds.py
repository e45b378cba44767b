"""A distribution on which robustness is at odds with accuracy: at-odds-2019, Section 2 and Appendices C and D.

y is uniform in {-1, 1}; x1 = y with probability p >= 1/2, else -y; x2 ... x_{d+1} ~ N(eta y, 1). The adversary moves
each coordinate by at most eps.

Theorem 2.1. Any classifier of standard accuracy at least 1 - delta has robust accuracy at most p delta / (1 - p) if
eps >= 2 eta.
Theorem 2.2. For eta >= 4 / sqrt(d) and p <= 0.975 the soft-margin SVM of unit norm that minimises the distribution's
loss has standard accuracy above 99 % and robust accuracy below 1 % at eps >= 2 eta. Minimising the adversarial loss
E max(0, 1 - y w'x + eps |w|_1) instead gives standard and robust accuracy p against any eps < 1.

Our derivation differs from the printed text as follows.
- Section 2.1 and Lemma D.5 leave out scales. The average of x2 ... x_{d+1} is N(eta y, 1/d), not N(eta, 1). With N(eta,
  1) the attacked average would be right in nearly half of all cases, not in less than 1 %. A w_i > 0 adds (eps - eta)
  w_i to the mean of 1 - y w'x + eps |w|_1, not 2 eta - eps. So the weights of x2 ... vanish for eps >= eta.
- "p against any eps < 1" holds for the classifier x1. With a free norm adversarial training finds x1 only for
  eta <= eps < 2p - 1. For larger eps the loss p max(0, 1 - w1 (1 - eps)) + (1 - p)(1 + w1 (1 + eps)) grows with w1, and
  the minimum is w = 0. With unit norm, as in the theorem, the minimum is w1 = 1 for eps >= 2 eta. For eps just above
  eta it may be w1 = 0, if p is small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import norm
from sklearn.svm import LinearSVC

from robustfeatures.engine.randomness import make_generator
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

Array = NDArray[np.float64]


def draw_examples(generator: np.random.Generator, count: int, dimension: int, *, p: float, eta: float) -> Array:
    """Draw y x (count, d + 1). The factor y changes no margin of a linear classifier."""
    first = np.where(generator.random((count, 1)) < p, 1.0, -1.0)
    return np.concatenate([first, generator.normal(eta, 1.0, (count, dimension))], axis=1)


def averaging_weights(dimension: int) -> Array:
    """The weights (d + 1,) that average x2 ... x_{d+1}: equation 4."""
    return np.concatenate([[0.0], np.full(dimension, 1 / dimension)])


def accuracy(weights: Array, eps: float, *, p: float, eta: float) -> float:
    """The exact accuracy of a linear classifier, `weights` (d + 1,), on the distribution, attacked with radius eps."""
    first, rest = float(weights[0]), weights[1:]
    mean = eta * float(rest.sum()) - eps * float(np.abs(weights).sum())
    deviation = float(np.linalg.norm(rest))
    found = 0.0
    for sign, chance in ((1, p), (-1, 1 - p)):
        margin = sign * first + mean
        found += chance * (float(norm.cdf(margin / deviation)) if deviation > 0 else float(margin > 0))
    return found


def robust_accuracy_bound(delta: Array, p: float) -> Array:
    """The bound on robust accuracy at eps >= 2 eta for the standard error delta, at most 1: Theorem 2.1."""
    return np.minimum(1.0, p * delta / (1 - p))


def gated_accuracies(limit: float, signal: float, p: float) -> tuple[float, float]:
    """Standard and robust accuracy of a nonlinear classifier; the adversary is that of Appendix C.

    Let z be the sum of x2 ... over sqrt(d). The classifier is sign(z) where |z| > limit, and x1 elsewhere. `signal` is
    eta sqrt(d). The adversary moves x2 ... by 2 eta, so that z ~ N(-signal, 1) for the label 1.
    """

    def right(mean: float) -> float:
        within = norm.cdf(limit - mean) - norm.cdf(-limit - mean)
        return float(norm.sf(limit - mean) + p * within)

    return right(signal), right(-signal)


def expected_hinge(mean: float, deviation: float) -> float:
    """E max(0, 1 - N(mean, deviation^2))."""
    gap = 1 - mean
    if deviation == 0:
        return max(0.0, gap)
    return float(gap * norm.cdf(gap / deviation) + deviation * norm.pdf(gap / deviation))


def fit_population_svm(dimension: int, eps: float, *, p: float, eta: float) -> tuple[Array, float]:
    """Minimise E max(0, 1 - y w'x + eps |w|_1) over weights (d + 1,) of unit norm: the weights and their penalty.

    By symmetry x2 ... x_{d+1} have equal weights (Lemma D.1), so an angle determines w. With the penalty lambda,
    |w| = 1 minimises the loss plus lambda |w|^2 / 2: lambda is minus the slope of the loss along w.
    """
    root = np.sqrt(dimension)

    def loss(angle: float, length: float = 1.0) -> float:
        first, rest = length * np.cos(angle), length * np.sin(angle)
        mean = rest * root * (eta - eps) - first * eps
        return p * expected_hinge(mean + first, rest) + (1 - p) * expected_hinge(mean - first, rest)

    found = minimize_scalar(loss, bounds=(0, np.pi / 2), method="bounded", options={"xatol": 1e-10})
    angle = min((0.0, float(found.x), np.pi / 2), key=loss)
    step = 1e-5
    penalty = (loss(angle, 1 - step) - loss(angle, 1 + step)) / (2 * step)
    weights = np.concatenate([[np.cos(angle)], np.full(dimension, np.sin(angle) / root)])
    return weights, penalty


def fit_adversarial_svm(signed: Array, eps: float, penalty: float) -> tuple[Array, float]:
    """Minimise mean max(0, 1 - y w'x + eps |w|_1) + penalty |w|^2 / 2 over (d + 1,): the weights, the duality gap.

    `signed` (n, d + 1) is y x. The dual, in a in [0, 1]^n, is to maximise mean(a) - |S(c)|^2 / (2 penalty), where
    c = mean(a y x) and S moves every component towards 0 by eps mean(a); w = S(c) / penalty. It is smooth and concave,
    so L-BFGS-B solves it.
    """

    def weights_from_dual(dual: Array) -> Array:
        correlation = dual @ signed / len(signed)
        moved: Array = np.sign(correlation) * np.maximum(0, np.abs(correlation) - eps * dual.mean())
        return moved / penalty

    def worst_margins(weights: Array) -> Array:
        margins: Array = signed @ weights - eps * np.abs(weights).sum()
        return margins

    def objective(dual: Array) -> tuple[float, Array]:
        weights = weights_from_dual(dual)
        value = penalty * float(weights @ weights) / 2 - float(dual.mean())
        # The factor n makes the gradient's components of order 1, as the solver's tolerance expects.
        return value * len(signed), worst_margins(weights) - 1

    found = minimize(
        objective,
        np.full(len(signed), 0.5),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, 1)] * len(signed),
        options={"maxiter": 5000, "maxfun": 10_000, "ftol": 1e-13, "gtol": 1e-7},
    )
    weights = weights_from_dual(found.x)
    primal = float(np.maximum(0, 1 - worst_margins(weights)).mean()) + penalty * float(weights @ weights) / 2
    return weights, primal + float(found.fun) / len(signed)


def fit_standard_svm(signed: Array, penalty: float) -> Array:
    """Minimise mean max(0, 1 - y w'x) + penalty |w|^2 / 2 over weights (d + 1,), by liblinear."""
    # LinearSVC needs two classes; flipping every other example with its label changes no margin.
    labels = np.where(np.arange(len(signed)) % 2, -1, 1)
    # liblinear draws the order of its steps.
    machine = LinearSVC(
        loss="hinge", C=1 / (penalty * len(signed)), fit_intercept=False, max_iter=100_000, random_state=0
    )
    weights: Array = machine.fit(signed * labels[:, None], labels).coef_[0]
    return weights


Row = dict[str, str | int | float]


def evaluate_between(
    dimension: int, mixtures: Sequence[float], limits: Sequence[float], *, p: float, eta: float
) -> Iterator[Row]:
    """Rows of classifiers between x1 and the average at eps = 2 eta: linear ones by angle, and the gated one."""
    for share in mixtures:
        angle = share * np.pi / 2
        weights = np.concatenate([[np.cos(angle)], np.full(dimension, np.sin(angle) / np.sqrt(dimension))])
        clean, robust = (accuracy(weights, eps, p=p, eta=eta) for eps in (0.0, 2 * eta))
        yield _row("mixture", "exact", share, 2 * eta, clean, robust, weights)
    for limit in limits:
        clean, robust = gated_accuracies(limit, eta * np.sqrt(dimension), p)
        yield _row("gated", "exact", limit, 2 * eta, clean, robust, averaging_weights(dimension))


def _row(
    classifier: str, source: str, parameter: float, eps: float, clean: float, robust: float, weights: Array
) -> Row:
    length = float(np.linalg.norm(weights))
    return {
        "classifier": classifier,
        "source": source,
        "parameter": parameter,
        "eps": eps,
        "clean": clean,
        "robust": robust,
        "first_weight": float(weights[0]) / length,
    }


def measure(
    run: Run,
    *,
    seed: int,
    p: float,
    signal: float,
    dimension: int,
    examples: int,
    relative_eps: Sequence[float],
    training_eps: float,
    mixtures: Sequence[float],
    limits: Sequence[float],
) -> list[Row]:
    """Accuracies of the averaging classifier, of both SVMs (of the distribution, and of a sample) and of mixtures.

    eta is `signal` / sqrt(d); `relative_eps` and `training_eps` are radii in units of eta. Columns classifier, source
    ("distribution", "sample", "exact"), parameter (training radius in units of eta, angle / 90 degrees, or gate), eps,
    clean and robust (shares, exact on the distribution), first_weight (share of x1 in a w of unit norm).

    Raises:
        UserError: the adversarial SVM of `training_eps` has no weights of unit norm.
    """
    eta = signal / float(np.sqrt(dimension))
    signed = draw_examples(make_generator(seed, "sample"), examples, dimension, p=p, eta=eta)
    found: list[tuple[str, str, float, Array]] = [("averaging", "exact", 0.0, averaging_weights(dimension))]
    for name, radius in (("standard SVM", 0.0), ("adversarial SVM", training_eps)):
        weights, penalty = fit_population_svm(dimension, radius * eta, p=p, eta=eta)
        if penalty <= 0:
            raise UserError(f"training_eps: no penalty gives the SVM at {radius:g} eta a norm of 1")
        found.append((name, "distribution", radius, weights))
        run.progress(len(found), 5)
        learned = (
            fit_standard_svm(signed, penalty) if radius == 0 else fit_adversarial_svm(signed, radius * eta, penalty)[0]
        )
        found.append((name, "sample", radius, learned))
    rows = [
        _row(
            name,
            source,
            parameter,
            radius * eta,
            accuracy(weights, 0.0, p=p, eta=eta),
            accuracy(weights, radius * eta, p=p, eta=eta),
            weights,
        )
        for name, source, parameter, weights in found
        for radius in relative_eps
    ]
    return [*rows, *evaluate_between(dimension, mixtures, limits, p=p, eta=eta)]
