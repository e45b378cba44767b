"""Carlini and Wagner's attack at all radii at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.attacks.carlini_wagner import Search
from robustfeatures.attacks.evaluating.refilled_batches import State, attack_in_refilled_batches
from robustfeatures.attacks.evaluating.task import AttackTask, Outcome

if TYPE_CHECKING:
    from robustfeatures.attacks.evaluating.settings import CarliniWagner


def attack(task: AttackTask, settings: CarliniWagner) -> Outcome:
    """Which images withstand which radii: those nearer than their nearest adversarial example that was found.

    The search for an image ends early once the example lies within the smallest radius.
    """
    search = Search(
        task.network,
        searches=settings.searches,
        steps=settings.steps,
        learning_rate=settings.learning_rate,
        initial_constant=settings.initial_constant,
    )
    lengths = torch.full(task.labels.shape, torch.inf, device=task.labels.device)

    def begin(places: Tensor, images: Tensor) -> State:
        return {"place": places, **search.begin(images, task.labels[places])}

    def step(state: State) -> tuple[State, Tensor]:
        done = search.advance(state)
        lengths[state["place"]] = state["length"]
        return state, done | (state["length"] <= task.radii[0])

    attack_in_refilled_batches(task, begin, step)
    return Outcome(task.standing & (task.radii < lengths[:, None]))
