"""The two-layer network with smoothed ReLU, its gradients in closed form, and attacks on its points.

adversarial-training-2025, Sections 2.3 to 2.5. The network has m filters for each class,

    F_i(X) = sum over r and p of s(<w_ir, X(p)>),

    s(z) = 0 for z <= 0,    z^q / (q rho^(q - 1)) on [0, rho],    z - (1 - 1/q) rho above.

Training takes gradient descent on the empirical cross-entropy L, W <- W - eta grad L(W). Adversarial training first
moves each training point by one step of gradient ascent and clips it patch by patch,

    X~ = X + clip(-eta~ grad_X F_y(X)),    W <- W - eta grad L~(W),

with L~ the loss at the points X~. The text has lost the margin and the norm of the ball. Here the margin is F_y: the
paper's coefficient updates (Lemma D.17) contain only the feature of the own class, and its remark on margin-based
objectives (Carlini and Wagner) extends it. The ball bounds the L2 norm of the perturbation of each patch by eps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robustfeatures.attacks.gradient_ascent import gradient_ascent
from robustfeatures.attacks.margins import compute_margins
from robustfeatures.theory.settings import PatchConstants

# A gradient shorter than this has no reliable direction.
MIN_NORM = 1e-30


@dataclass(frozen=True)
class SmoothedReLU:
    """The activation s with exponent q and threshold rho."""

    exponent: int
    threshold: float

    def __call__(self, z: Tensor) -> Tensor:
        """s(z), elementwise."""
        bounded = (z / self.threshold).clamp(0, 1)
        return self.threshold * bounded.pow(self.exponent) / self.exponent + (z - self.threshold).clamp(min=0)

    def slope(self, z: Tensor) -> Tensor:
        """s'(z), elementwise, in [0, 1]."""
        return (z / self.threshold).clamp(0, 1).pow(self.exponent - 1)


def activation(constants: PatchConstants) -> SmoothedReLU:
    """The activation of a setting."""
    return SmoothedReLU(constants.exponent, constants.threshold)


def logits(weights: Tensor, points: Tensor, relu: SmoothedReLU) -> Tensor:
    """F (n, k) of filters (k, m, d) at points (n, P, d)."""
    return relu(_preactivations(weights, points)).sum(dim=(1, 3))


def _preactivations(weights: Tensor, points: Tensor) -> Tensor:
    """<w_ir, X(p)> as (n, P, k, m)."""
    classes, width, dimension = weights.shape
    found = points.reshape(-1, dimension) @ weights.reshape(-1, dimension).T
    return found.reshape(*points.shape[:2], classes, width)


def loss_and_gradient(weights: Tensor, points: Tensor, labels: Tensor, relu: SmoothedReLU) -> tuple[Tensor, Tensor]:
    """The mean cross-entropy, and its gradient (k, m, d)."""
    preactivations = _preactivations(weights, points)
    log_probabilities = relu(preactivations).sum(dim=(1, 3)).log_softmax(dim=1)
    loss = -log_probabilities.gather(1, labels[:, None]).mean()
    residual = log_probabilities.exp()
    residual[torch.arange(len(labels)), labels] -= 1
    backward = relu.slope(preactivations) * (residual / len(labels))[:, None, :, None]
    flat = backward.reshape(-1, weights.shape[0] * weights.shape[1])
    return loss, (flat.T @ points.reshape(-1, points.shape[2])).reshape(weights.shape)


def class_gradient(weights: Tensor, points: Tensor, classes: Tensor, relu: SmoothedReLU) -> Tensor:
    """grad_X F_c(X) (n, P, d), with the class c of each point in `classes` (n,)."""
    chosen = weights[classes]
    return torch.bmm(relu.slope(torch.bmm(points, chosen.transpose(1, 2))), chosen)


def clip(change: Tensor, radius: float | Tensor) -> Tensor:
    """Clip each patch of the perturbation (n, P, d) to an L2 norm of at most `radius`."""
    shares: Tensor = radius / _patch_norms(change)
    return change * shares.clamp(max=1)


def _patch_norms(change: Tensor) -> Tensor:
    norms: Tensor = change.norm(dim=2, keepdim=True)
    return norms.clamp(min=MIN_NORM)


class PatchBall:
    """An L2 ball for each patch of points (n, P, d), as `gradient_ascent` takes it."""

    def step(self, points: Tensor, gradient: Tensor, step_size: Tensor) -> Tensor:
        """Move each patch by `step_size` along its own normalised gradient."""
        return points + step_size * gradient / _patch_norms(gradient)

    def project(self, points: Tensor, origin: Tensor, eps: Tensor) -> Tensor:
        """Project each patch onto the ball of radius `eps` around the patch of `origin`."""
        return origin + clip(points - origin, eps)

    def random_start(self, points: Tensor, eps: float, generator: torch.Generator) -> Tensor:
        """Draw a perturbation (n, P, d), in each patch uniformly from the ball."""
        direction = torch.randn(points.shape, generator=generator).to(points)
        # A uniform point of a d-ball has a radius distributed as U^(1/d).
        radius = torch.rand((*points.shape[:2], 1), generator=generator).to(points) ** (1 / points.shape[2])
        return eps * radius * direction / _patch_norms(direction)


def one_step(weights: Tensor, points: Tensor, labels: Tensor, constants: PatchConstants) -> Tensor:
    """The adversarial examples (n, P, d) of Section 2.5: one clipped step of gradient ascent."""
    descent = class_gradient(weights, points, labels, activation(constants))
    return points + clip(-constants.ascent_rate * descent, constants.radius)


def pgd(
    weights: Tensor,
    points: Tensor,
    labels: Tensor,
    constants: PatchConstants,
    *,
    start: Tensor,
    steps: int,
    relative_step_size: float,
) -> Tensor:
    """Adversarial examples (n, P, d) by projected gradient descent on the margin F_y - max F_j, from `start` (n, P, d).

    Each step moves every patch by `relative_step_size` of the radius along its own normalised gradient. A filter has
    no slope where its product with a patch is not positive. So a start at the point itself never plants a feature that
    the patch does not hold, unless noise points to it; a random start gives half of these products a slope.
    """
    relu = activation(constants)

    def minus_margin(moved: Tensor) -> Tensor:
        return -compute_margins(logits(weights, moved, relu), labels).sum()

    return gradient_ascent(
        minus_margin,
        start,
        norm=PatchBall(),
        step_size=relative_step_size * constants.radius,
        steps=steps,
        origin=points,
        eps=constants.radius,
        bounds=None,
    )


def is_right(weights: Tensor, points: Tensor, labels: Tensor, relu: SmoothedReLU) -> Tensor:
    """Whether the own class of each point has strictly the largest output, bool (n,); a tie is an error."""
    return compute_margins(logits(weights, points, relu), labels) > 0


def is_certified(weights: Tensor, points: Tensor, labels: Tensor, constants: PatchConstants) -> Tensor:
    """Whether no perturbation in the ball can change the class of a point, bool (n,), by a bound.

    The products of a patch with a filter w change by at most eps |w|, and the activation is monotonic. So the own
    output is at least that at <w, X(p)> - eps |w|, and every other output at most that at <w, X(p)> + eps |w|. The
    bound is sufficient, not necessary: one perturbation need not attain it in all filters.
    """
    relu = activation(constants)
    products = _preactivations(weights, points)
    most = constants.radius * weights.norm(dim=2)
    least, largest = (relu(products + sign * most).sum(dim=(1, 3)) for sign in (-1, 1))
    own = labels[:, None]
    return compute_margins(largest.scatter(1, own, least.gather(1, own)), labels) > 0
