"""The interface that the pipeline gives to science: a device, inputs by role, and progress reports."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from robustfeatures.data.dataset import ImageDataset
    from robustfeatures.models.network import Network


class Run(Protocol):
    """One computation of a result."""

    @property
    def device(self) -> torch.device:
        """The device to compute on."""
        ...

    @property
    def roles(self) -> Collection[str]:
        """The roles of all inputs, in the order of the recipe."""
        ...

    def progress(self, done: int, total: int, /) -> None:
        """Report that `done` of `total` steps are finished; fast enough to call for every batch."""
        ...

    def dataset(self, role: str, split: str) -> ImageDataset:
        """One split of the data set in that role; its images are read on access."""
        ...

    def rows(self, role: str) -> list[dict[str, str]]:
        """The rows of the measurement in that role, by column."""
        ...

    def network(self, role: str) -> Network:
        """The network in that role, newly loaded, in eval mode, on the device."""
        ...
