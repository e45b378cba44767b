"""PGD with several starts and step sizes, at rising radii, each image until it is misclassified."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from robustfeatures.attacks.evaluating.refilled_batches import State, attack_in_refilled_batches
from robustfeatures.attacks.evaluating.task import AttackTask, Counts, Outcome
from robustfeatures.attacks.gradient_ascent import ascent_step
from robustfeatures.attacks.norms import TINY
from robustfeatures.engine.randomness import derive_seed

if TYPE_CHECKING:
    from robustfeatures.attacks.evaluating.settings import PGD

DIAGNOSTICS = ("no gradient", "loss not raised", "broken from a random start alone")


def attack(task: AttackTask, settings: PGD) -> Outcome:
    """Which images withstand PGD at which radii.

    An image goes through all runs (starts times step sizes) at its smallest radius, then at the next, and leaves for
    good as soon as an iterate is misclassified, which counts at every larger radius too. Iterates are those of
    `robustfeatures.attacks.pgd`. Diagnostics, per image that was attacked at a radius:

    - "no gradient": the gradient of the loss at the image is shorter than 1e-12, so that it carries no direction;
    - "loss not raised": it withstood the first run, whose last iterate has no higher loss than the image itself;
    - "broken from a random start alone": no run from the image itself broke it, one from a random start did.
    """
    runs = _Runs(task, settings)
    attack_in_refilled_batches(task, runs.begin, runs.step)
    levels = torch.arange(len(task.radii), device=task.labels.device)
    counted = DIAGNOSTICS if settings.random_starts else DIAGNOSTICS[:2]
    return Outcome(levels < runs.broken_at[:, None], {name: runs.counts[name].counts for name in counted})


class _Runs:
    """The runs of one evaluation; `broken_at` (n,) becomes the level of the first radius at which an image fell."""

    def __init__(self, task: AttackTask, settings: PGD) -> None:
        device = task.labels.device
        self.task = task
        self.settings = settings
        # Read once, for the random starts.
        self.rows, self.radii = task.rows.tolist(), task.radii.tolist()
        self.sizes = torch.tensor(settings.relative_step_sizes, device=device)
        self.from_image = len(settings.relative_step_sizes)
        self.runs = self.from_image * (1 + settings.random_starts)
        self.limits = task.levels
        self.broken_at = self.limits.clone()
        self.counts = {name: Counts(len(task.radii), device) for name in DIAGNOSTICS}

    def begin(self, places: Tensor, images: Tensor) -> State:
        """Images before the first step of the first run at the smallest radius."""
        none = torch.zeros_like(places)
        return {
            "place": places,
            "origin": images,
            "image": images,
            "level": none,
            "run": none,
            "step": none,
            "first_loss": torch.zeros(len(places), device=images.device),
        }

    def step(self, state: State) -> tuple[State, Tensor]:
        """One gradient; images at the end of a run begin the next."""
        images = state["image"].detach().requires_grad_(True)
        loss, wrong, gradient = self._evaluated(images, self.task.labels[state["place"]])
        state["first_loss"] = torch.where(state["step"] == 0, loss, state["first_loss"])
        ended = wrong | (state["step"] == self.settings.steps)
        self._count(state, loss, gradient, wrong, ended)
        self.broken_at[state["place"]] = torch.where(wrong, state["level"], self.broken_at[state["place"]])
        eps = self._wide(self.task.radii[state["level"]])
        size = self._wide(self.sizes[state["run"] % self.from_image]) * eps
        state["image"] = ascent_step(
            images.detach(), gradient, norm=self.task.ball, step_size=size, origin=state["origin"], eps=eps
        )
        state["step"] = state["step"] + 1
        done = wrong | self._begin_next(state, ended & ~wrong)
        return state, done

    def _evaluated(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss (m,), whether misclassified (m,), and the gradient by the images."""
        logits = self.task.network(images)
        loss = functional.cross_entropy(logits, labels, reduction="none")
        (gradient,) = torch.autograd.grad(loss.sum(), images)
        return loss.detach(), logits.detach().argmax(dim=1) != labels, gradient

    def _begin_next(self, state: State, ended: Tensor) -> Tensor:
        """Set the images whose run has `ended` (m,) to the next one; says which have withstood all."""
        last = ended & (state["run"] == self.runs - 1)
        state["run"] = torch.where(last, 0, state["run"] + ended)
        state["level"] = state["level"] + last
        done = last & (state["level"] == self.limits[state["place"]])
        state["step"] = torch.where(ended, 0, state["step"])
        state["image"] = torch.where(self._wide(ended), state["origin"], state["image"])
        if self.settings.random_starts:
            # Asking which images these are waits for the device.
            elsewhere = (ended & ~done & (state["run"] >= self.from_image)).nonzero().squeeze(1)
            if len(elsewhere):
                starts = self._random_starts({name: values[elsewhere] for name, values in state.items()})
                state["image"][elsewhere] = starts
        return done

    def _random_starts(self, state: State) -> Tensor:
        """Points (m, C, H, W) of the balls round the images, each drawn by its row, the run and the radius."""
        origin = state["origin"]
        # Drawn on the host, with one transfer each way, since each makes it wait for the device.
        like = torch.empty_like(origin[:1], device="cpu")
        drawn = []
        for place, run, level in torch.stack((state["place"], state["run"], state["level"]), dim=1).tolist():
            seed = derive_seed(self.rows[place], "random start", run, level)
            generator = torch.Generator().manual_seed(seed)
            drawn.append(self.task.ball.random_start(like, self.radii[level], generator))
        return (origin + torch.cat(drawn).to(origin)).clamp(0.0, 1.0)

    def _count(self, state: State, loss: Tensor, gradient: Tensor, wrong: Tensor, ended: Tensor) -> None:
        """The diagnostics that this step can tell something of."""
        first = (state["run"] == 0) & (state["step"] == 0)
        lengths = torch.linalg.vector_norm(gradient, dim=(1, 2, 3))
        self.counts["no gradient"].add(state["level"], lengths < TINY, cases=first)
        whole = (state["run"] == 0) & ended
        stuck = ~wrong & (loss <= state["first_loss"])
        self.counts["loss not raised"].add(state["level"], stuck, cases=whole)
        if self.settings.random_starts:
            late = state["run"] >= self.from_image
            over = wrong | (ended & (state["run"] == self.runs - 1))
            self.counts["broken from a random start alone"].add(state["level"], wrong & late, cases=over)

    @staticmethod
    def _wide(values: Tensor) -> Tensor:
        return values.view(-1, 1, 1, 1)
