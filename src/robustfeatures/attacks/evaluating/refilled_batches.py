"""Batches that are refilled as images leave them, so that no step is spent on an image that is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from robustfeatures.attacks.evaluating.task import AttackTask

# Tensors of one entry per image of a batch, by name.
State = dict[str, Tensor]


class ImageReader:
    """Images in the order of their places, as many at a time as are asked for."""

    def __init__(self, task: AttackTask, places: Tensor) -> None:
        """`places` (m,) count in `task.rows`."""
        self._coming = self._read(task, places)
        self._waiting: tuple[Tensor, Tensor] | None = None
        self.left = len(places)

    @staticmethod
    def _read(task: AttackTask, places: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        chunks = torch.split(places, task.size)
        read = task.images.batches(task.rows[places.cpu()], task.size)
        for chunk, (_, images) in zip(chunks, read, strict=True):
            yield chunk, images

    def take(self, count: int) -> list[tuple[Tensor, Tensor]]:
        """Places and images of the next `count` at most."""
        taken: list[tuple[Tensor, Tensor]] = []
        while count and self.left:
            places, images = self._waiting if self._waiting is not None else next(self._coming)
            taken.append((places[:count], images[:count]))
            self._waiting = (places[count:], images[count:]) if len(places) > count else None
            given = len(taken[-1][0])
            count -= given
            self.left -= given
        return taken


def attack_in_refilled_batches(
    task: AttackTask,
    begin: Callable[[Tensor, Tensor], State],
    step: Callable[[State], tuple[State, Tensor]],
) -> None:
    """Attack every image that stands at any radius, in batches that are refilled as images leave them.

    `begin` gives the state of new images from their places (m,) in `task.rows` and pixels (m, C, H, W). `step` takes
    one step with all images of the batch, and says which of them are done, bool (m,).
    """
    places = task.standing.any(dim=1).nonzero().squeeze(1)
    reader = ImageReader(task, places)
    state: State = {}
    held = 0
    while held or reader.left:
        if held < task.size and reader.left:
            fresh = [begin(*new) for new in reader.take(task.size - held)]
            parts = ([state] if held else []) + fresh
            state = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        state, done = step(state)
        # Asking which images leave waits for the device; a step with images that are done would cost more.
        staying = (~done).nonzero().squeeze(1)
        if len(staying) < len(done):
            state = {name: values[staying] for name, values in state.items()}
            task.progress((len(places) - reader.left - len(staying)) / len(places))
        held = len(staying)
