"""Random points of the sphere: an attack without gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.attacks.evaluating.refilled_batches import State, attack_in_refilled_batches
from robustfeatures.attacks.evaluating.task import AttackTask, Counts, Outcome
from robustfeatures.engine.randomness import derive_seed

if TYPE_CHECKING:
    from robustfeatures.attacks.evaluating.settings import Noise

# The diagnostic: images that an attack without gradients breaks after attacks with gradients failed.
BROKEN_WITHOUT_GRADIENTS = "broken without gradients"


def attack(task: AttackTask, settings: Noise) -> Outcome:
    """Find which images are robust at `draws` random points on the surface of the ball.

    All images and radii share the same directions: uniform on the sphere in L2, corners of the ball in Linf.
    """
    device = task.labels.device
    robust_levels = task.robust_levels
    broken_at = robust_levels.clone()
    counts = Counts(len(task.radii), device)
    generator = torch.Generator().manual_seed(derive_seed(0, "noise"))
    drawn = torch.randn((settings.draws, *task.images.image_shape), generator=generator)
    directions = task.ball.step(torch.zeros_like(drawn), drawn, torch.ones(())).to(device)

    def begin(positions: Tensor, images: Tensor) -> State:
        none = torch.zeros_like(positions)
        return {"position": positions, "origin": images, "level": none, "draw": none}

    @torch.no_grad()
    def step(state: State) -> tuple[State, Tensor]:
        eps = task.radii[state["level"]].view(-1, 1, 1, 1)
        logits = task.network((state["origin"] + eps * directions[state["draw"]]).clamp(0.0, 1.0))
        wrong = logits.argmax(dim=1) != task.labels[state["position"]]
        broken_at[state["position"]] = torch.where(wrong, state["level"], broken_at[state["position"]])
        last = state["draw"] == settings.draws - 1
        counts.add(state["level"], wrong, cases=wrong | last)
        state["level"] = state["level"] + last
        state["draw"] = torch.where(last, 0, state["draw"] + 1)
        return state, wrong | (last & (state["level"] == robust_levels[state["position"]]))

    attack_in_refilled_batches(task, begin, step)
    levels = torch.arange(len(task.radii), device=device)
    return Outcome(levels < broken_at[:, None], {BROKEN_WITHOUT_GRADIENTS: counts.counts})
