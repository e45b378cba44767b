"""The L2 attack of Carlini and Wagner: one search per image serves all radii."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.attacks.carlini_wagner import Search
from robustfeatures.attacks.evaluating.refilled_batches import State, attack_in_refilled_batches
from robustfeatures.attacks.evaluating.task import AttackTask, Outcome
from robustfeatures.attacks.evaluating.usable_gradients import NO_GRADIENT, count_without_gradient
from robustfeatures.attacks.margins import compute_margins

if TYPE_CHECKING:
    from robustfeatures.attacks.evaluating.settings import CarliniWagner


def attack(task: AttackTask, settings: CarliniWagner) -> Outcome:
    """Find which images are robust at which radii: the radius is below the distance of the nearest adversarial example.

    The search for an image ends early when it finds an example within the smallest radius. The diagnostic "no gradient"
    is that of `usable_gradients`, of the margin that the search lowers.
    """
    without = count_without_gradient(task, compute_margins)
    search = Search(
        task.network,
        searches=settings.searches,
        steps=settings.steps,
        learning_rate=settings.learning_rate,
        initial_constant=settings.initial_constant,
    )
    distances = torch.full(task.labels.shape, torch.inf, device=task.labels.device)

    def begin(positions: Tensor, images: Tensor) -> State:
        return {"position": positions, **search.begin(images, task.labels[positions])}

    def step(state: State) -> tuple[State, Tensor]:
        done = search.advance(state)
        distances[state["position"]] = state["distance"]
        return state, done | (state["distance"] <= task.radii[0])

    attack_in_refilled_batches(task, begin, step)
    return Outcome(task.robust & (task.radii < distances[:, None]), {NO_GRADIENT: without})
