"""What the attacks of an evaluation are given and give back, and batches that are refilled as images leave them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robustfeatures.attacks.norms import Norm, norm_named
from robustfeatures.engine.batches import batch_size

if TYPE_CHECKING:
    from robustfeatures.engine.batches import Batches

# Tensors of one entry per image of a batch, by name.
State = dict[str, Tensor]


@dataclass(frozen=True)
class Attacked:
    """What is attacked: a frozen network in eval mode, and some images of a split.

    `rows` are those of the n images, int64 (n,) on the CPU; `labels` (n,) the classes that the attacks make them leave.
    `radii` (R,) rise and are above 0. `standing`, bool (n, R), says what attacks before this one have left: whether an
    image stands at a radius, and then at every smaller one. `labels`, `radii` and `standing` are on the device.
    `progress` is told the share of the images that is done.
    """

    network: nn.Module
    images: Batches
    rows: Tensor
    labels: Tensor
    norm: str
    radii: Tensor
    standing: Tensor
    num_classes: int
    progress: Callable[[float], None] = lambda share: None

    @property
    def ball(self) -> Norm:
        """What a step and a ball are."""
        return norm_named(self.norm)

    @property
    def levels(self) -> Tensor:
        """At how many of the radii each image still stands, int64 (n,)."""
        return self.standing.sum(dim=1)

    @property
    def size(self) -> int:
        """How many images a batch holds."""
        return batch_size(self.images.device, self.images.image_shape)


@dataclass(frozen=True)
class Outcome:
    """What an attack leaves: `standing` as in `Attacked`, and by diagnostic the counts found and looked at, (R, 2)."""

    standing: Tensor
    diagnostics: Mapping[str, Tensor] = field(default_factory=dict)


class Counts:
    """How often a diagnostic was found, and in how many cases it was looked for, by level: int64 (R, 2)."""

    def __init__(self, levels: int, device: torch.device) -> None:
        self.counts = torch.zeros((levels, 2), dtype=torch.int64, device=device)

    def add(self, levels: Tensor, found: Tensor, cases: Tensor | None = None) -> None:
        """One case at each of `levels` (m,), or at those that are `cases` (m,); of them those `found` (m,) count."""
        # What is no case adds 0: to leave it out, the host would wait for the device to know how many are left.
        cases = torch.ones_like(found) if cases is None else cases
        self.counts.index_add_(0, levels, torch.stack((found & cases, cases), dim=1).to(torch.int64))


class Reader:
    """Images in the order of their places, as many at a time as are asked for."""

    def __init__(self, attacked: Attacked, places: Tensor) -> None:
        """`places` (m,) count in `attacked.rows`."""
        self._coming = self._read(attacked, places)
        self._waiting: tuple[Tensor, Tensor] | None = None
        self.left = len(places)

    @staticmethod
    def _read(attacked: Attacked, places: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        chunks = torch.split(places, attacked.size)
        read = attacked.images.batches(attacked.rows[places.cpu()], attacked.size)
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


def work_through(
    attacked: Attacked,
    enter: Callable[[Tensor, Tensor], State],
    advance: Callable[[State], tuple[State, Tensor]],
) -> None:
    """Take every image that stands anywhere through an attack, in batches that are refilled as images leave.

    `enter` gives the state of new images from their places (m,) and pixels (m, C, H, W); `advance` takes one step with
    all images of the batch and says which of them are done with, bool (m,).
    """
    places = attacked.standing.any(dim=1).nonzero().squeeze(1)
    reader = Reader(attacked, places)
    state: State = {}
    held = 0
    while held or reader.left:
        if held < attacked.size and reader.left:
            fresh = [enter(*new) for new in reader.take(attacked.size - held)]
            parts = ([state] if held else []) + fresh
            state = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        state, done = advance(state)
        # Asking which images leave waits for the device; a step with images that are done with would cost more.
        staying = (~done).nonzero().squeeze(1)
        if len(staying) < len(done):
            state = {name: values[staying] for name, values in state.items()}
            attacked.progress((len(places) - reader.left - len(staying)) / len(places))
        held = len(staying)
