"""Carlini and Wagner's attack at all radii at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.attacks.carlini_wagner import Search
from robustfeatures.attacks.evaluating.attacked import Attacked, Outcome, State, work_through

if TYPE_CHECKING:
    from robustfeatures.attacks.evaluating.settings import CarliniWagner


def attack(attacked: Attacked, settings: CarliniWagner) -> Outcome:
    """Which images withstand which radii: those nearer than their nearest adversarial example that was found.

    The search for an image ends early once the example lies within the smallest radius.
    """
    search = Search(
        attacked.network,
        searches=settings.searches,
        steps=settings.steps,
        learning_rate=settings.learning_rate,
        initial_constant=settings.initial_constant,
    )
    lengths = torch.full(attacked.labels.shape, torch.inf, device=attacked.labels.device)

    def enter(places: Tensor, images: Tensor) -> State:
        return {"place": places, **search.begin(images, attacked.labels[places])}

    def advance(state: State) -> tuple[State, Tensor]:
        done = search.advance(state)
        lengths[state["place"]] = state["length"]
        return state, done | (state["length"] <= attacked.radii[0])

    work_through(attacked, enter, advance)
    return Outcome(attacked.standing & (attacked.radii < lengths[:, None]))
