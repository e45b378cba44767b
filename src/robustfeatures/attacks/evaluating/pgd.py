"""PGD with several starts and step sizes, at rising radii, for each image until it is misclassified."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.attacks.evaluating.refilled_batches import State, attack_in_refilled_batches
from robustfeatures.attacks.evaluating.task import AttackTask, Counts, Outcome
from robustfeatures.attacks.evaluating.usable_gradients import NO_GRADIENT, find_gradient, has_no_direction
from robustfeatures.attacks.gradient_ascent import ascent_step, keep_finite
from robustfeatures.attacks.margins import compute_log_odds
from robustfeatures.engine.randomness import derive_seed

if TYPE_CHECKING:
    from robustfeatures.attacks.evaluating.settings import PGD

DIAGNOSTICS = (NO_GRADIENT, "loss not raised", "broken from a random start alone")


def attack(task: AttackTask, settings: PGD) -> Outcome:
    """Find which images are robust against PGD at which radii.

    Each image goes through all runs (starts times step sizes) at the smallest radius, then at the next radius, and so
    on. An image is done when an iterate is misclassified; it then counts as broken at all larger radii too. The
    iterates are the ones of `robustfeatures.attacks.pgd`. Diagnostics, for each image attacked at a radius:

    - "no gradient": the gradient of the loss at the image is shorter than 1e-20, or has values that are NaN or
      infinite, which count as 0 in a step;
    - "loss not raised": the first run did not break the image, and its last iterate has no higher loss than the image;
    - "broken from a random start alone": no run from the image broke it, but a run from a random start did.
    """
    runs = _PGDRuns(task, settings)
    attack_in_refilled_batches(task, runs.begin, runs.step)
    levels = torch.arange(len(task.radii), device=task.labels.device)
    diagnostics = DIAGNOSTICS if settings.random_starts else DIAGNOSTICS[:2]
    return Outcome(levels < runs.broken_at[:, None], {name: runs.counts[name].counts for name in diagnostics})


class _PGDRuns:
    """All runs of one evaluation; `broken_at` (n,) is the level (index) of the smallest radius that broke the image."""

    def __init__(self, task: AttackTask, settings: PGD) -> None:
        device = task.labels.device
        self.task = task
        self.settings = settings
        # Copied to the host once, for the random starts.
        self.rows, self.radii = task.rows.tolist(), task.radii.tolist()
        self.step_sizes = torch.tensor(settings.relative_step_sizes, dtype=torch.float32, device=device)
        self.runs_from_image = len(settings.relative_step_sizes)
        self.num_runs = self.runs_from_image * (1 + settings.random_starts)
        self.robust_levels = task.robust_levels
        self.broken_at = self.robust_levels.clone()
        self.counts = {name: Counts(len(task.radii), device) for name in DIAGNOSTICS}

    def begin(self, positions: Tensor, images: Tensor) -> State:
        """Return the state before the first step of the first run at the smallest radius."""
        none = torch.zeros_like(positions)
        return {
            "position": positions,
            "origin": images,
            "image": images,
            "level": none,
            "run": none,
            "step": none,
            "first_loss": torch.zeros(len(positions), device=images.device),
        }

    def step(self, state: State) -> tuple[State, Tensor]:
        """Do one gradient step; images at the end of a run begin the next run."""
        images = state["image"].detach().requires_grad_(True)
        loss, wrong, gradient = self._evaluate(images, self.task.labels[state["position"]])
        state["first_loss"] = torch.where(state["step"] == 0, loss, state["first_loss"])
        ended = wrong | (state["step"] == self.settings.steps)
        self._count(state, loss, gradient, wrong, ended)
        self.broken_at[state["position"]] = torch.where(wrong, state["level"], self.broken_at[state["position"]])
        eps = self._per_image(self.task.radii[state["level"]])
        step_size = self._per_image(self.step_sizes[state["run"] % self.runs_from_image]) * eps
        state["image"] = ascent_step(
            images.detach(),
            keep_finite(gradient),
            norm=self.task.ball,
            step_size=step_size,
            origin=state["origin"],
            eps=eps,
        )
        state["step"] = state["step"] + 1
        done = wrong | self._begin_next(state, ended & ~wrong)
        return state, done

    def _evaluate(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss (m,), whether the prediction is wrong (m,), and the gradient with respect to the images."""
        logits = self.task.network(images)
        loss = compute_log_odds(logits, labels)
        gradient = find_gradient(loss.sum(), images)
        return loss.detach(), logits.detach().argmax(dim=1) != labels, gradient

    def _begin_next(self, state: State, ended: Tensor) -> Tensor:
        """Begin the next run of the images whose run has `ended` (m,); return which images finished all runs."""
        last = ended & (state["run"] == self.num_runs - 1)
        state["run"] = torch.where(last, 0, state["run"] + ended)
        state["level"] = state["level"] + last
        done = last & (state["level"] == self.robust_levels[state["position"]])
        state["step"] = torch.where(ended, 0, state["step"])
        state["image"] = torch.where(self._per_image(ended), state["origin"], state["image"])
        if self.settings.random_starts:
            # `nonzero` waits for the device.
            random = (ended & ~done & (state["run"] >= self.runs_from_image)).nonzero().squeeze(1)
            if len(random):
                state["image"][random] = self._draw_starts({name: values[random] for name, values in state.items()})
        return done

    def _draw_starts(self, state: State) -> Tensor:
        """Draw points (m, C, H, W) of the balls round the images; the seed is the row, the run and the radius."""
        origin = state["origin"]
        # Drawn on the host with one transfer each way, because each transfer waits for the device.
        like = torch.empty_like(origin[:1], device="cpu")
        drawn = []
        for position, run, level in torch.stack((state["position"], state["run"], state["level"]), dim=1).tolist():
            seed = derive_seed(self.rows[position], "random start", run, level)
            generator = torch.Generator().manual_seed(seed)
            drawn.append(self.task.ball.random_start(like, self.radii[level], generator))
        return (origin + torch.cat(drawn).to(origin)).clamp(0.0, 1.0)

    def _count(self, state: State, loss: Tensor, gradient: Tensor, wrong: Tensor, ended: Tensor) -> None:
        """Add the cases of this step to the diagnostics."""
        first = (state["run"] == 0) & (state["step"] == 0)
        self.counts[NO_GRADIENT].add(state["level"], has_no_direction(gradient), cases=first)
        first_run_ended = (state["run"] == 0) & ended
        # NaN is not raised either.
        not_raised = ~wrong & ~(loss > state["first_loss"])
        self.counts["loss not raised"].add(state["level"], not_raised, cases=first_run_ended)
        if self.settings.random_starts:
            from_random = state["run"] >= self.runs_from_image
            all_ended = wrong | (ended & (state["run"] == self.num_runs - 1))
            self.counts["broken from a random start alone"].add(state["level"], wrong & from_random, cases=all_ended)

    @staticmethod
    def _per_image(values: Tensor) -> Tensor:
        return values.view(-1, 1, 1, 1)
