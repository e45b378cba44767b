"""The input and the output of each attack of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robustfeatures.attacks.norms import Norm, load_norm

if TYPE_CHECKING:
    from robustfeatures.engine.batches import Batches


@dataclass(frozen=True)
class AttackTask:
    """A frozen network in eval mode, and the images of a split to attack.

    rows: the rows of the n images in the split, int64 (n,) on the CPU.
    labels: the classes (n,) of the images; an attack succeeds if the network predicts another class.
    radii: the radii (R,) of the ball, above 0 and in rising order.
    batch_size: the number of images in a batch.
    planned_batch_size: what `batch_size` would be if the memory of the device sufficed.
    robust: bool (n, R), True if no earlier attack broke the image at the radius. An image that is robust at a radius is
        robust at all smaller radii.
    progress: receives the share of the images that are done, 0 to 1.

    `labels`, `radii` and `robust` are on the device.
    """

    network: nn.Module
    images: Batches
    rows: Tensor
    labels: Tensor
    norm: str
    radii: Tensor
    robust: Tensor
    num_classes: int
    batch_size: int
    planned_batch_size: int
    progress: Callable[[float], None] = lambda share: None

    @property
    def ball(self) -> Norm:
        """The norm of steps and balls."""
        return load_norm(self.norm)

    @property
    def robust_levels(self) -> Tensor:
        """The number of radii at which each image is robust, int64 (n,)."""
        return self.robust.sum(dim=1)


@dataclass(frozen=True)
class Outcome:
    """`robust` as in `AttackTask`, after the attack; and for each diagnostic its `Counts`, int64 (R, 2), by name."""

    robust: Tensor
    diagnostics: Mapping[str, Tensor] = field(default_factory=dict)


class Counts:
    """How often a diagnostic is true, and in how many cases, at each level (index of the radius): int64 (R, 2)."""

    def __init__(self, levels: int, device: torch.device) -> None:
        self.counts = torch.zeros((levels, 2), dtype=torch.int64, device=device)

    def add(self, levels: Tensor, found: Tensor, cases: Tensor | None = None) -> None:
        """Add one case at each of `levels` (m,), if it is among `cases` (m,); `found` (m,) is the diagnostic, bool."""
        # The others add 0. To leave them out, the host would have to ask the device how many cases there are.
        cases = torch.ones_like(found) if cases is None else cases
        self.counts.index_add_(0, levels, torch.stack((found & cases, cases), dim=1).to(torch.int64))
