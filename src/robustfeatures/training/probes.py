"""Probes: what is taken of a network while it trains. They change neither its weights nor any of its draws."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robustfeatures.engine.batches import Batches, InMemory, choose_batch_size
from robustfeatures.training.accuracy import predictions

if TYPE_CHECKING:
    from robustfeatures.engine.settings import Precision

# What `take` calls the network that is trained.
ITSELF = "itself"

# (predictions (N,), labels (N,)) -> value.
Measure = Callable[[Tensor, Tensor], float]


def share_right(predicted: Tensor, labels: Tensor) -> float:
    """The accuracy of predictions (N,), from 0 to 1."""
    return (predicted == labels).double().mean().item()


@dataclass
class ProbeSet:
    """Images and labels (N,) on which `measure` is taken after every `every` epochs, and after the last.

    `attack` replaces each batch of images, given with its labels and a seed of its own, by adversarial examples of the
    network as it is then; `judges` are other networks that are shown the same. `seconds` is what it has taken so far.
    """

    name: str
    images: Batches
    labels: Tensor
    precision: Precision = "float32"
    every: int = 1
    attack: Callable[[Tensor, Tensor, int], Tensor] | None = None
    judges: Mapping[str, nn.Module] = field(default_factory=dict)
    measure: Measure = share_right
    seconds: float = 0.0

    def due(self, epoch: int, epochs: int) -> bool:
        """Whether it is taken after this one of so many epochs, counted from 1."""
        return epoch % self.every == 0 or epoch == epochs

    def take(self, network: nn.Module) -> dict[str, float]:
        """The value for the network that is trained, by `ITSELF`, and for each judge by its name."""
        began = time.monotonic()
        devices = [self.images.device] if self.images.device.type == "cuda" else []
        # A layer or an attack that draws must not move the draws of the training.
        with torch.random.fork_rng(devices):
            shown = self.images if self.attack is None else self._attacked(self.attack)
            asked = {ITSELF: network, **self.judges}
            values = {
                name: self.measure(predictions(judge, shown, precision=self.precision), self.labels)
                for name, judge in asked.items()
            }
        self.seconds += time.monotonic() - began
        return values

    def _attacked(self, attack: Callable[[Tensor, Tensor, int], Tensor]) -> InMemory:
        size = choose_batch_size(self.images.device, self.images.image_shape)
        batches = self.images.batches(torch.arange(len(self.images)), size)
        return InMemory(
            torch.cat([attack(batch, self.labels[rows], number) for number, (rows, batch) in enumerate(batches)])
        )
