"""The L2 attack of Carlini and Wagner (2017), "Towards Evaluating the Robustness of Neural Networks", Section VI."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from robustfeatures.attacks.gradient_ascent import keep_finite
from robustfeatures.attacks.margins import compute_margins
from robustfeatures.engine.eval_mode import freeze

# atanh is infinite for pixels of 0 and 1. As in the authors' code, images are scaled by this factor first.
TANH_LIMIT = 0.999999
# Adam's constants (Kingma and Ba, 2015).
BETA_1, BETA_2, ADAM_EPSILON = 0.9, 0.999, 1e-8

# Tensors of one entry per image, by name.
State = dict[str, Tensor]


class Search:
    """A search for the nearest adversarial example of each image, in steps of Adam.

    Minimises ||x - x_0||^2 + c max(Z_y(x) - max_{i != y} Z_i(x), 0) over w with x = (1 + tanh(w)) / 2, which keeps x in
    [0, 1]. The search tries `searches` constants c for each image, with `steps` steps each. While no adversarial
    example is found, the next c is ten times as large. Afterwards the next c is halfway between the largest c that
    failed and the smallest c that succeeded. The network must not change its images.
    """

    def __init__(
        self,
        network: Callable[[Tensor], Tensor],
        *,
        searches: int,
        steps: int,
        learning_rate: float,
        initial_constant: float,
    ) -> None:
        self.network = network
        self.searches = searches
        self.steps = steps
        self.learning_rate = learning_rate
        self.initial_constant = initial_constant

    def begin(self, images: Tensor, labels: Tensor) -> State:
        """Return the state before the first step, for images (N, C, H, W) in [0, 1] with classes `labels` (N,).

        `advance` updates two entries of the state: "nearest" is the nearest adversarial example so far, and "distance"
        (N,) is its L2 distance, infinite until an example is found.
        """
        none = torch.zeros(len(images), device=images.device)
        return {
            "label": labels,
            "origin": images.detach(),
            "start": torch.atanh((2 * images.detach() - 1) * TANH_LIMIT),
            "change": torch.zeros_like(images),
            "first_moment": torch.zeros_like(images),
            "second_moment": torch.zeros_like(images),
            "step": torch.zeros_like(labels),
            "search": torch.zeros_like(labels),
            "constant": torch.full_like(none, self.initial_constant),
            "lower": none,
            "upper": torch.full_like(none, torch.inf),
            "found": torch.zeros_like(none, dtype=torch.bool),
            "distance": torch.full_like(none, torch.inf),
            "nearest": images.detach(),
        }

    def advance(self, state: State) -> Tensor:
        """Do one step of Adam for every image, in place; return which images have finished all searches, bool (N,)."""
        images, gradient, adversarial = self._evaluate(state)
        distances = torch.linalg.vector_norm(images - state["origin"], dim=(1, 2, 3))
        nearer = adversarial & (distances < state["distance"])
        state["distance"] = torch.where(nearer, distances, state["distance"])
        state["nearest"] = torch.where(_per_image(nearer), images, state["nearest"])
        state["found"] = state["found"] | adversarial
        state["step"] = state["step"] + 1
        state["first_moment"] = BETA_1 * state["first_moment"] + (1 - BETA_1) * gradient
        state["second_moment"] = BETA_2 * state["second_moment"] + (1 - BETA_2) * gradient**2
        mean = state["first_moment"] / _per_image(1 - BETA_1 ** state["step"])
        square = state["second_moment"] / _per_image(1 - BETA_2 ** state["step"])
        state["change"] = state["change"] - self.learning_rate * mean / (square.sqrt() + ADAM_EPSILON)
        self._choose_next_constant(state, state["step"] == self.steps)
        return state["search"] == self.searches

    def _evaluate(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Return the images x, the gradient with respect to the change in w, and which x are adversarial."""
        change = state["change"].detach().requires_grad_(True)
        images = (1 + torch.tanh(state["start"] + change)) / 2
        logits = self.network(images)
        margin = compute_margins(logits, state["label"])
        squares = (images - (1 + torch.tanh(state["start"])) / 2).square().sum(dim=(1, 2, 3))
        loss = squares + state["constant"] * margin.clamp_min(0.0)
        (gradient,) = torch.autograd.grad(loss.sum(), change)
        return images.detach(), keep_finite(gradient), logits.detach().argmax(dim=1) != state["label"]

    @staticmethod
    def _choose_next_constant(state: State, ended: Tensor) -> None:
        """Choose the next constant for the images whose search has `ended` (N,)."""
        if not ended.any():
            return
        found, constant = state["found"], state["constant"]
        state["upper"] = torch.where(ended & found, constant, state["upper"])
        state["lower"] = torch.where(ended & ~found, constant, state["lower"])
        halfway = (state["lower"] + state["upper"]) / 2
        following = torch.where(state["upper"].isinf(), 10 * constant, halfway)
        state["constant"] = torch.where(ended, following, constant)
        state["found"] = found & ~ended
        state["search"] = state["search"] + ended
        state["step"] = torch.where(ended, 0, state["step"])
        for name in ("change", "first_moment", "second_moment"):
            state[name] = state[name].masked_fill(_per_image(ended), 0.0)


def carlini_wagner(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    searches: int = 9,
    steps: int = 1000,
    learning_rate: float = 0.01,
    initial_constant: float = 0.001,
) -> tuple[Tensor, Tensor]:
    """Return the nearest misclassified images that the attack finds, (N, C, H, W), and their L2 distances (N,).

    `images` (N, C, H, W) are in [0, 1], and `labels` (N,) are their classes. If the attack finds no adversarial example
    for an image, it returns the original image and an infinite distance. An image that is misclassified from the start
    changes by rounding alone. The model runs in eval mode; afterwards its mode is restored.

    Raises:
        ValueError: `searches`, `steps`, `learning_rate` or `initial_constant` is not above 0.
    """
    settings = {"learning_rate": learning_rate, "initial_constant": initial_constant}
    for name, value in {"searches": searches, "steps": steps, **settings}.items():
        if value <= 0:
            raise ValueError(f"{name}: {value} is not above 0")
    # The model may work in place, and the search needs the images as they are.
    search = Search(lambda images: model(images.clone()), searches=searches, steps=steps, **settings)
    with freeze(model), torch.enable_grad():
        state = search.begin(images, labels)
        while not search.advance(state).all():
            pass
    return state["nearest"], state["distance"]


def _per_image(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)
