"""A `Run` for science with its inputs in memory, without a pipeline."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.models.network import Network


@dataclass
class MemoryRun:
    """Inputs by role: a network, the splits of a data set by name, or rows. `reports` collects reports of progress."""

    inputs: Mapping[str, Network | Mapping[str, ImageDataset] | list[dict[str, str]]] = field(default_factory=dict)
    reports: list[tuple[int, int]] = field(default_factory=list)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def roles(self) -> Collection[str]:
        return self.inputs.keys()

    def progress(self, done: int, total: int, /) -> None:
        assert 0 <= done <= total
        self.reports.append((done, total))

    def dataset(self, role: str, split: str) -> ImageDataset:
        found = self.inputs[role]
        assert isinstance(found, Mapping), f"{role} is no data set"
        return found[split]

    def rows(self, role: str) -> list[dict[str, str]]:
        found = self.inputs[role]
        assert isinstance(found, list), f"{role} has no rows"
        return found

    def network(self, role: str) -> Network:
        found = self.inputs[role]
        assert isinstance(found, Network), f"{role} is no network"
        return copy.deepcopy(found).eval()
