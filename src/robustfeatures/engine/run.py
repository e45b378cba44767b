"""What science is handed by the pipeline: a device, inputs by their role, and a way to tell how far it is."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from robustfeatures.data.dataset import ImageDataset
    from robustfeatures.models.network import Network


class Run(Protocol):
    """The making of one result, as its science sees it."""

    @property
    def device(self) -> torch.device:
        """Where to compute."""
        ...

    @property
    def roles(self) -> Collection[str]:
        """The roles of all inputs, in the order of the recipe."""
        ...

    def progress(self, done: int, total: int, /) -> None:
        """Tell that `done` of `total` steps are done; cheap enough for every batch."""
        ...

    def dataset(self, role: str, split: str) -> ImageDataset:
        """One split of the data set in that role; its images are read where they are asked for."""
        ...

    def network(self, role: str) -> Network:
        """The network in that role, newly loaded, in eval mode, on the device."""
        ...
