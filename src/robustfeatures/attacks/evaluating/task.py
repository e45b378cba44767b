"""What each attack of an evaluation is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robustfeatures.attacks.norms import Norm, norm_named
from robustfeatures.engine.batches import choose_batch_size

if TYPE_CHECKING:
    from robustfeatures.engine.batches import Batches


@dataclass(frozen=True)
class AttackTask:
    """A frozen network in eval mode, and the images of a split on which an attack is to try it.

    `rows` are the n images' rows in the split, int64 (n,) on the CPU. `labels` (n,) are the classes that attacks make
    them leave. `radii` (R,) rise and are above 0. `standing`, bool (n, R), says which images the attacks before this
    one have left at which radius; an image that stands at a radius stands at every smaller one. `labels`, `radii` and
    `standing` are on the device. `progress` is told the share of the images that is done.
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
        return choose_batch_size(self.images.device, self.images.image_shape)


@dataclass(frozen=True)
class Outcome:
    """`standing` as in `AttackTask`, after the attack; and for each diagnostic, by name, the `Counts`, int64 (R, 2)."""

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
