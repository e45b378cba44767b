"""Batches that are refilled when images are done, so that no step is wasted on a finished image."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from robustfeatures.attacks.evaluating.task import AttackTask

# Tensors of one entry per image of a batch, by name.
State = dict[str, Tensor]


class ImageReader:
    """Reads the images at given positions, in order, any number at a time."""

    def __init__(self, task: AttackTask, positions: Tensor) -> None:
        """Read the images at `positions` (m,), which are indices into `task.rows`."""
        self._chunks = self._read(task, positions)
        self._remainder: tuple[Tensor, Tensor] | None = None
        self.left = len(positions)

    @staticmethod
    def _read(task: AttackTask, positions: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        chunks = torch.split(positions, task.batch_size)
        read = task.images.batches(task.rows[positions.cpu()], task.batch_size)
        for chunk, (_, images) in zip(chunks, read, strict=True):
            yield chunk, images

    def take(self, count: int) -> list[tuple[Tensor, Tensor]]:
        """Return positions and images of the next `count` images, or of all that are left if there are fewer."""
        taken: list[tuple[Tensor, Tensor]] = []
        while count and self.left:
            positions, images = self._remainder if self._remainder is not None else next(self._chunks)
            taken.append((positions[:count], images[:count]))
            self._remainder = (positions[count:], images[count:]) if len(positions) > count else None
            given = len(taken[-1][0])
            count -= given
            self.left -= given
        return taken


def attack_in_refilled_batches(
    task: AttackTask,
    begin: Callable[[Tensor, Tensor], State],
    step: Callable[[State], tuple[State, Tensor]],
) -> None:
    """Attack every image that is robust at any radius, in batches that are refilled when images are done.

    `begin` returns the state of new images, given their positions (m,) in `task.rows` and their pixels (m, C, H, W).
    `step` does one step for all images of the batch and returns the new state and which images are done, bool (m,).
    """
    positions = task.robust.any(dim=1).nonzero().squeeze(1)
    reader = ImageReader(task, positions)
    state: State = {}
    held = 0
    while held or reader.left:
        if held < task.batch_size and reader.left:
            fresh = [begin(*new) for new in reader.take(task.batch_size - held)]
            parts = ([state] if held else []) + fresh
            state = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        state, done = step(state)
        # `nonzero` waits for the device, but a step with finished images would cost more.
        remaining = (~done).nonzero().squeeze(1)
        if len(remaining) < len(done):
            state = {name: values[remaining] for name, values in state.items()}
            task.progress((len(positions) - reader.left - len(remaining)) / len(positions))
        held = len(remaining)
