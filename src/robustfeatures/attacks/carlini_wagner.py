"""The L2 attack of Carlini and Wagner (2017), "Towards Evaluating the Robustness of Neural Networks", Section VI."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robustfeatures.engine.eval_mode import freeze

# Pixels of 0 and 1 lie at infinity in the space that is searched; these stand for them, as in the authors' code.
INSIDE = 0.999999
# Adam's constants (Kingma and Ba, 2015).
BETA_1, BETA_2, ADAM_EPSILON = 0.9, 0.999, 1e-8

# Tensors of one entry per image, by name.
State = dict[str, Tensor]


class Search:
    """The search for the nearest adversarial example of each image, a step of Adam at a time.

    Minimises ||x - x_0||^2 + c max(Z_y(x) - max_{i != y} Z_i(x), 0) over w with x = (1 + tanh(w)) / 2, which keeps x in
    [0, 1]. After `steps` steps the constant c is ten times as large as long as no adversarial example was found, and
    halfway between the largest that failed and the smallest that did not from then on, `searches` constants in all.
    """

    def __init__(
        self, network: nn.Module, *, searches: int, steps: int, learning_rate: float, initial_constant: float
    ) -> None:
        self.network = network
        self.searches = searches
        self.steps = steps
        self.learning_rate = learning_rate
        self.initial_constant = initial_constant

    def begin(self, images: Tensor, labels: Tensor) -> State:
        """The state of images (N, C, H, W) in [0, 1] of classes `labels` (N,) before the first step.

        "length" (N,) becomes the L2 distance of the nearest adversarial example yet, infinite until one is found, and
        "nearest" that example.
        """
        none = torch.zeros(len(images), device=images.device)
        return {
            "label": labels,
            "origin": images,
            "start": torch.atanh((2 * images - 1) * INSIDE),
            "change": torch.zeros_like(images),
            "mean": torch.zeros_like(images),
            "square": torch.zeros_like(images),
            "step": torch.zeros_like(labels),
            "search": torch.zeros_like(labels),
            "constant": torch.full_like(none, self.initial_constant),
            "lower": none,
            "upper": torch.full_like(none, torch.inf),
            "found": torch.zeros_like(none, dtype=torch.bool),
            "length": torch.full_like(none, torch.inf),
            "nearest": images,
        }

    def advance(self, state: State) -> Tensor:
        """One step of Adam for every image, in place; says which have been through all searches, bool (N,)."""
        images, gradient, adversarial = self._evaluated(state)
        lengths = torch.linalg.vector_norm(images - state["origin"], dim=(1, 2, 3))
        nearer = adversarial & (lengths < state["length"])
        state["length"] = torch.where(nearer, lengths, state["length"])
        state["nearest"] = torch.where(_wide(nearer), images, state["nearest"])
        state["found"] = state["found"] | adversarial
        state["step"] = state["step"] + 1
        state["mean"] = BETA_1 * state["mean"] + (1 - BETA_1) * gradient
        state["square"] = BETA_2 * state["square"] + (1 - BETA_2) * gradient**2
        mean = state["mean"] / _wide(1 - BETA_1 ** state["step"])
        square = state["square"] / _wide(1 - BETA_2 ** state["step"])
        state["change"] = state["change"] - self.learning_rate * mean / (square.sqrt() + ADAM_EPSILON)
        self._try_next(state, state["step"] == self.steps)
        return state["search"] == self.searches

    def _evaluated(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """The images as they are, the gradient by the change in w, and which images are adversarial."""
        change = state["change"].detach().requires_grad_(True)
        images = (1 + torch.tanh(state["start"] + change)) / 2
        logits = self.network(images)
        own = state["label"][:, None]
        margin = logits.gather(1, own).squeeze(1) - logits.scatter(1, own, -torch.inf).amax(dim=1)
        squares = (images - (1 + torch.tanh(state["start"])) / 2).square().sum(dim=(1, 2, 3))
        loss = squares + state["constant"] * margin.clamp_min(0.0)
        (gradient,) = torch.autograd.grad(loss.sum(), change)
        return images.detach(), gradient, logits.detach().argmax(dim=1) != state["label"]

    @staticmethod
    def _try_next(state: State, ended: Tensor) -> None:
        """The next constant for the images whose search has `ended` (N,)."""
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
        for name in ("change", "mean", "square"):
            state[name] = state[name].masked_fill(_wide(ended), 0.0)


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
    """The nearest misclassified images that were found, (N, C, H, W), and their L2 distances (N,).

    `images` (N, C, H, W) are in [0, 1], `labels` (N,) their classes. Where none was found the image comes back as it
    is, at an infinite distance. The model is run in eval mode and left as it was.

    Raises:
        ValueError: `searches`, `steps`, `learning_rate` or `initial_constant` is not above 0.
    """
    settings = {"learning_rate": learning_rate, "initial_constant": initial_constant}
    for name, value in {"searches": searches, "steps": steps, **settings}.items():
        if value <= 0:
            raise ValueError(f"{name}: {value} is not above 0")
    search = Search(model, searches=searches, steps=steps, **settings)
    with freeze(model):
        state = search.begin(images, labels)
        while not search.advance(state).all():
            pass
    return state["nearest"], state["length"]


def _wide(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)
