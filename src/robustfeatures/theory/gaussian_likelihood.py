"""Maximum likelihood of a Gaussian under attack: not-bugs-2019, Section 4 and Appendix E.

The data are x ~ N(y mu*, Sigma*) with Sigma* diagonal. By symmetry one of the two classes is enough. With
v = x - mu the loss is l = v' Sigma^-1 v / 2 + log det Sigma / 2.

Theorem 1. An adversary maximises v' Sigma^-1 v - C |delta|^2, with C > 1 / sigma_min(Sigma*). He moves x by
(C Sigma - I)^-1 v. At the true parameters this raises the expected v' Sigma^-1 v by
tr[(I + (C Sigma* - I)^-1)^2] - d. Among all Sigma* of trace k (and sigma_min > 1 / C) the rise is least at (k / d) I.

Theorem 2. Against the linear adversary delta = M v with E|M v|^2 = eps^2 (equation 14), the robust mean is mu*, and
Sigma = Sigma* / 2 + I / lambda + (Sigma* / lambda + Sigma*^2 / 4)^(1/2), with lambda set by eps.

Theorem 3. The minimum over mu of the cosine between mu and the classifier's gradient Sigma^-1 mu is
2 sqrt(kappa) / (1 + kappa), with the condition number kappa of Sigma. It is larger for the robust Sigma.

Our derivation differs from the printed text as follows.
- Theorem 1 is about twice the negative log-likelihood. With the loss l above and the penalty C |delta|^2 / 2 the rise
  is half of the printed one. The printed rise leaves the penalty out. With the penalty subtracted the rise is
  tr[(C Sigma* - I)^-1]. The theorem allows C = 1 / sigma_min, for which the rise is infinite. In the proof
  delta = (C Sigma - I)^-1 lacks its v.
- Theorem 2 in standard deviations: s = s* + m with m s = 1 / lambda in each coordinate and |m| = eps, so in one
  dimension s = s* + eps. The paper sets tr(Sigma* M^2) = eps where equation (14) says eps^2; its bounds
  (1 + eps^1/2) / (eps^1/2 + eps^3/2) < lambda < (1 + eps^1/2) / eps^1/2 (up to factors) therefore hold with eps for
  eps^1/2: lambda grows like 1 / eps as eps falls. `multiplier_bounds` has them with their factors.
- Theorem 2 needs no eps_0. Only lambda > 1 / sigma_min(Sigma) maximises, and for every eps exactly one such lambda
  exists. For every eps the mean is mu*, because the loss grows with every |v_i|.
- Theorem 3 needs neither Lemma 6 nor Lemma 7: Sigma_i / Sigma*_i = (1 + sqrt(1 + 4 / (lambda Sigma*_i)))^2 / 4 falls as
  Sigma*_i grows, so the condition number falls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, brentq, minimize
from torch import Tensor

from robustfeatures.engine.randomness import make_generator

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

Array = NDArray[np.float64]

# Steps of the adversary per step of the learner; the adversary starts from its last perturbation.
ASCENTS = 5
# The fewest steps of gradient ascent on a concave objective, and the share of the error that may be left. Each step
# shrinks the error to at most the share 1 / (C sigma_min).
PENALISED_STEPS = 60
PENALISED_ERROR = 1e-8


def vulnerability(variances: Array, penalty: float) -> float:
    """tr[(I + (C Sigma - I)^-1)^2] - d for the diagonal of Sigma (d,) and C: Theorem 1.

    Raises:
        ValueError: C is at most 1 / sigma_min, so the adversary's gain is unbounded.
    """
    if penalty * variances.min() <= 1:
        raise ValueError(f"penalty: {penalty} is not above 1 / sigma_min = {1 / variances.min()}")
    return float(((1 + 1 / (penalty * variances - 1)) ** 2).sum() - len(variances))


def multiplier(variances: Array, eps: float) -> float:
    """The lambda of Theorem 2 for the diagonal of Sigma* (d,) and eps > 0: the only root of |m(lambda)| = eps."""
    deviations = np.sqrt(variances)

    def excess(inverse: float) -> float:
        return float(np.linalg.norm((np.sqrt(variances + 4 * inverse) - deviations) / 2) - eps)

    # The ends follow from m_i s_i = 1 / lambda: every m_i is at most eps, and one is at least eps / sqrt(d).
    ends = eps**2 / (2 * len(variances)), 2 * eps * (eps + float(deviations.max()))
    return 1 / float(brentq(excess, *ends, xtol=1e-16, rtol=1e-14))


def multiplier_bounds(variances: Array, eps: float) -> tuple[float, float]:
    """Appendix E.3.8 with eps^2 for eps: bounds on lambda that hold for every eps > 0.

    They use tr(Sigma)^(1/2) <= tr(Sigma*)^(1/2) + eps and sigma_min(Sigma) >= sigma_min(Sigma*).
    """
    dimension, least, trace = len(variances), variances.min(), variances.sum()
    low = dimension * (1 + np.sqrt(dimension * least) / eps) / (np.sqrt(trace) + eps) ** 2
    high = (1 + np.sqrt(trace) / eps) / least
    return float(low), float(high)


def robust_variances(variances: Array, eps: float) -> Array:
    """The diagonal of the robust Sigma (d,) for that of Sigma* (d,): Theorem 2; Sigma* itself for eps 0."""
    if eps == 0:
        return variances
    inverse = 1 / multiplier(variances, eps)
    found: Array = variances / 2 + inverse + np.sqrt(variances * inverse + variances**2 / 4)
    return found


def least_cosine(variances: Array) -> float:
    """The minimum over mu of the cosine between mu and Sigma^-1 mu, for the diagonal of Sigma (d,): Lemma 8."""
    condition = variances.max() / variances.min()
    return float(2 * np.sqrt(condition) / (1 + condition))


def ascend(perturbation: Tensor, distances: Tensor, variances: Tensor, eps: Tensor) -> Tensor:
    """Normalised gradient ascent on |distances + perturbation|^2 in the metric Sigma^-1, on the sphere of radius eps.

    perturbation, distances (..., n, d); variances (..., 1, d); eps (..., 1, 1). Only one
    stationary perturbation has the signs of the distances, and it is the best one.
    """
    perturbation = perturbation.abs() * distances.sign()
    for _ in range(ASCENTS):
        gradient = (distances + perturbation) / variances
        perturbation = eps * gradient / gradient.norm(dim=-1, keepdim=True)
    return perturbation


def descend(
    distances: Callable[[Tensor], Tensor], mean: Tensor, scale: Tensor, eps: Tensor, *, steps: int, rate: float
) -> tuple[Tensor, Tensor]:
    """Fit a Gaussian by adversarial training with gradient descent: its final mean and variances (..., d).

    `distances` maps a mean (..., d) to v (..., n, d): x - mu for n examples, or the single example sqrt(E v^2). On that
    single example the linear adversary of Theorem 2 acts as an ordinary one. eps: (...). The mean starts at `mean`, in
    units of `scale` (..., d). The variances start at E v^2; gradient descent updates their logarithm.
    """
    radius = eps[..., None, None]
    perturbation = torch.ones_like(distances(mean))
    offset = torch.zeros_like(mean)
    logarithm = (distances(mean) ** 2).mean(dim=-2).log()
    for _ in range(steps):
        with torch.no_grad():
            found = distances(mean + scale * offset)
            perturbation = ascend(perturbation, found, logarithm.exp()[..., None, :], radius)
        offset.requires_grad_(True)
        logarithm.requires_grad_(True)
        moved = distances(mean + scale * offset) + perturbation
        squares = (moved**2).mean(dim=-2)
        loss = 0.5 * (logarithm + squares / logarithm.exp()).sum()
        gradients = torch.autograd.grad(loss, (offset, logarithm))
        # Unclipped, an attack of a large eps on one small variance would make a huge step in that coordinate.
        offset, logarithm = (
            (value - rate * gradient.clamp(-1.0, 1.0)).detach()
            for value, gradient in zip((offset, logarithm), gradients, strict=True)
        )
    return mean + scale * offset, logarithm.exp()


def population_distances(mean: Tensor, variances: Tensor) -> Callable[[Tensor], Tensor]:
    """sqrt(E v^2) (..., 1, d) as a function of mu, for x ~ N(mean, diag(variances)) (..., d)."""
    return lambda learned: (variances + (mean - learned) ** 2).sqrt()[..., None, :]


def penalised_gain(distances: Array, variances: Array, penalty: float) -> float:
    """The rise of v' Sigma^-1 v by gradient ascent on v' Sigma^-1 v - C |delta|^2, mean over examples v (n, d)."""
    perturbation = np.zeros_like(distances)
    steps = math.ceil(math.log(PENALISED_ERROR) / math.log(1 / (penalty * variances.min())))
    for _ in range(max(PENALISED_STEPS, steps)):
        perturbation += ((distances + perturbation) / variances - penalty * perturbation) / penalty
    gains: Array = (((distances + perturbation) ** 2 - distances**2) / variances).sum(axis=1)
    return float(gains.mean())


def search_least_vulnerability(start: Array, penalty: float) -> tuple[float, Array]:
    """Minimise `vulnerability` over spectra (d,) with the trace of `start`, by SLSQP: the minimum and the spectrum."""

    def objective(variances: Array) -> tuple[float, Array]:
        slope: Array = -2 * penalty**2 * variances / (penalty * variances - 1) ** 3
        return vulnerability(variances, penalty), slope

    trace = float(start.sum())
    # Just above 1 / C, and below the start.
    least = min(1.01, (1 + penalty * float(start.min())) / 2) / penalty
    found = minimize(
        objective,
        start,
        jac=True,
        bounds=Bounds(least, np.inf),
        constraints=LinearConstraint(np.ones((1, len(start))), trace, trace),
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    return float(found.fun), np.asarray(found.x)


def search_least_cosine(variances: Array, start: Array) -> float:
    """Minimise the cosine between mu and Sigma^-1 mu by L-BFGS-B, from the mean `start` (d,)."""

    def cosine(mean: Array) -> tuple[float, Array]:
        gradient = mean / variances
        value = mean @ gradient / (np.linalg.norm(mean) * np.linalg.norm(gradient))
        slope: Array = value * (
            2 * gradient / (mean @ gradient) - mean / (mean @ mean) - gradient / variances / (gradient @ gradient)
        )
        return float(value), slope

    return float(minimize(cosine, start, jac=True, method="L-BFGS-B", options={"gtol": 1e-9, "ftol": 1e-15}).fun)


Row = dict[str, str | int | float]


def _row(theorem: str, quantity: str, dimension: int, adversary: float, closed: float, numerical: float) -> Row:
    return {
        "theorem": theorem,
        "quantity": quantity,
        "dimension": dimension,
        "adversary": adversary,
        "closed_form": closed,
        "numerical": numerical,
    }


def compare_theorem_1(generator: np.random.Generator, variances: Array, penalty: float, examples: int) -> Iterator[Row]:
    """Compare Theorem 1 with gradient ascent on examples and with a search; C is `penalty` / sigma_min."""
    dimension = len(variances)
    strength = penalty / float(variances.min())
    distances = generator.normal(size=(examples, dimension)) * np.sqrt(variances)
    closed = vulnerability(variances, strength)
    yield _row("1", "rise of the loss", dimension, penalty, closed, penalised_gain(distances, variances, strength))
    even = np.full(dimension, variances.mean())
    least, _ = search_least_vulnerability(variances, strength)
    yield _row("1", "least rise at this trace", dimension, penalty, vulnerability(even, strength), least)


def compare_theorem_2(
    mean: Array, variances: Array, radii: Sequence[float], *, steps: int, rate: float
) -> Iterator[Row]:
    """Compare Theorem 2 with gradient descent on the robust likelihood from a mean of 0, for all radii at once."""
    dimension = len(variances)
    centre, spread = (torch.from_numpy(value).expand(len(radii), -1) for value in (mean, variances))
    found = descend(
        population_distances(centre, spread),
        torch.zeros_like(centre),
        spread.sqrt(),
        torch.tensor(radii, dtype=torch.float64),
        steps=steps,
        rate=rate,
    )
    for eps, learned_mean, learned in zip(radii, *(value.numpy() for value in found), strict=True):
        closed = robust_variances(variances, eps)
        yield _row("2", "distance of the mean", dimension, eps, 0.0, float(np.linalg.norm(learned_mean - mean)))
        for quantity, place in (("least variance", variances.argmin()), ("largest variance", variances.argmax())):
            yield _row("2", quantity, dimension, eps, float(closed[place]), float(learned[place]))
        added = np.sqrt(learned) - np.sqrt(variances)
        low, high = multiplier_bounds(variances, eps)
        lagrange = multiplier(variances, eps), float(1 / (added * np.sqrt(learned)).mean())
        yield _row("2", "lambda", dimension, eps, *lagrange)
        yield _row("2", "lambda over its lower bound", dimension, eps, *(each / low for each in lagrange))
        yield _row("2", "lambda over its upper bound", dimension, eps, *(each / high for each in lagrange))


def compare_theorem_3(generator: np.random.Generator, variances: Array, eps: float) -> Iterator[Row]:
    """Compare Theorem 3 with a search over mu from a random start."""
    start = generator.normal(size=len(variances))
    for name, learned in (("standard", variances), ("robust", robust_variances(variances, eps))):
        closed, searched = least_cosine(learned), search_least_cosine(learned, start)
        yield _row("3", f"least cosine, {name}", len(variances), eps, closed, searched)


def learn_from_examples(samples: Array, eps: float, *, steps: int, rate: float) -> tuple[Array, Array]:
    """Learn mean and variances (d,) from examples (n, d); the adversary moves each example by eps (equation 13)."""
    examples = torch.from_numpy(samples)
    found = descend(
        lambda learned: examples - learned[..., None, :],
        examples.mean(dim=0),
        examples.std(dim=0, correction=0),
        torch.tensor(eps, dtype=torch.float64),
        steps=steps,
        rate=rate,
    )
    return found[0].numpy(), found[1].numpy()


def compare_relaxation(samples: Array, eps: float, *, steps: int, rate: float) -> Iterator[Row]:
    """Compare the linear adversary of Theorem 2 with that of equation 13, on the same examples (n, d)."""
    _, learned = learn_from_examples(samples, eps, steps=steps, rate=rate)
    closed = robust_variances(samples.var(axis=0), eps)
    yield _row("13", "trace of the covariance", samples.shape[1], eps, float(closed.sum()), float(learned.sum()))


def compare_plane(
    mean: Array, variances: Array, samples: Array, eps: float, *, steps: int, rate: float
) -> Iterator[Row]:
    """Compare mean and variances (2,) of Figure 4: by Theorem 2, and learned from examples (n, 2)."""
    learned = learn_from_examples(samples, eps, steps=steps, rate=rate)
    closed = mean, robust_variances(variances, eps)
    for name, expected, found in zip(("mean", "variance"), closed, learned, strict=True):
        for axis in range(2):
            yield _row("plane", f"{name} {axis + 1}", 2, eps, float(expected[axis]), float(found[axis]))


def measure(
    run: Run,
    *,
    seed: int,
    dimensions: Sequence[int],
    condition: float,
    relative_eps: Sequence[float],
    penalty: float,
    penalised_examples: int,
    plane_mean: Sequence[float],
    plane_variances: Sequence[float],
    plane_eps: Sequence[float],
    examples: int,
    steps: int,
    example_steps: int,
    rate: float,
) -> list[Row]:
    """Compare closed forms with numerical optima for random spectra, and in the plane of Figure 4.

    In each dimension d >= 2 the variances are log-uniform between two ends, and two of them are the ends; the ratio of
    the ends is `condition`. The mean is drawn from N(0, I). eps is `relative_eps` sqrt(d); equation 13 takes the
    largest eps. C is `penalty` / sigma_min. Columns theorem ("1", "2", "3", "13" for the adversary of
    equation 13, "plane"), quantity, dimension, adversary (C sigma_min, or eps), closed_form, numerical.
    """
    rows: list[Row] = []
    for done, dimension in enumerate(dimensions):
        run.progress(done, len(dimensions))
        generator = make_generator(seed, "spectrum", dimension)
        variances = condition ** np.array([-0.5, 0.5, *generator.uniform(-0.5, 0.5, dimension - 2)])
        mean = generator.normal(size=dimension)
        samples = mean + generator.normal(size=(examples, dimension)) * np.sqrt(variances)
        rows += compare_theorem_1(generator, variances, penalty, penalised_examples)
        radii = [share * float(np.sqrt(dimension)) for share in relative_eps]
        rows += compare_theorem_2(mean, variances, radii, steps=steps, rate=rate)
        for eps in radii:
            rows += compare_theorem_3(generator, variances, eps)
        rows += compare_relaxation(samples, max(radii), steps=example_steps, rate=rate)
    centre, spread = np.array(plane_mean), np.array(plane_variances)
    samples = centre + make_generator(seed, "plane").normal(size=(examples, 2)) * np.sqrt(spread)
    for eps in plane_eps:
        rows += compare_plane(centre, spread, samples, eps, steps=example_steps, rate=rate)
    return rows
