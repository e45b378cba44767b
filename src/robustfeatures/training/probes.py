"""Probes: measurements of a network while it trains. They change neither its weights nor its random draws."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robustfeatures.engine.batches import Batches, InMemory, choose_batch_size
from robustfeatures.training.accuracy import predict

if TYPE_CHECKING:
    from robustfeatures.engine.settings import Precision

# The name of the network in training, beside its transfer models.
ITSELF = "itself"

# (predictions (N,), labels (N,)) -> value.
Measure = Callable[[Tensor, Tensor], float]


def fraction_correct(predicted: Tensor, labels: Tensor) -> float:
    """Return the accuracy of predictions (N,), 0 to 1."""
    return (predicted == labels).double().mean().item()


@dataclass
class ProbeSet:
    """Images and labels (N,) on which a network is measured after every `every` epochs and after the last epoch.

    attack: (images, labels, seed of the batch) -> adversarial examples of the network in training.
    transfer_models: other networks, by name; they classify the same images or adversarial examples.
    measure: (predictions (N,), labels (N,)) -> value.
    seconds: the time that the probe has taken so far.
    """

    name: str
    images: Batches
    labels: Tensor
    precision: Precision = "float32"
    every: int = 1
    attack: Callable[[Tensor, Tensor, int], Tensor] | None = None
    transfer_models: Mapping[str, nn.Module] = field(default_factory=dict)
    measure: Measure = fraction_correct
    seconds: float = 0.0

    def is_due(self, epoch: int, epochs: int) -> bool:
        """Return whether to evaluate the probe after epoch `epoch`, counted from 1, of `epochs`."""
        return epoch % self.every == 0 or epoch == epochs

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Return the value for the network in training, named `ITSELF`, and for each transfer model, by name."""
        began = time.monotonic()
        devices = [self.images.device] if self.images.device.type == "cuda" else []
        # A layer or an attack may use torch's generator; this must not change the draws of the training.
        with torch.random.fork_rng(devices):
            images = self.images if self.attack is None else self._attack_images(self.attack)
            models = {ITSELF: network, **self.transfer_models}
            values = {
                name: self.measure(predict(model, images, precision=self.precision), self.labels)
                for name, model in models.items()
            }
        self.seconds += time.monotonic() - began
        return values

    def _attack_images(self, attack: Callable[[Tensor, Tensor, int], Tensor]) -> InMemory:
        size = choose_batch_size(self.images.device, self.images.image_shape)
        batches = self.images.batches(torch.arange(len(self.images)), size)
        return InMemory(
            torch.cat([attack(batch, self.labels[rows], number) for number, (rows, batch) in enumerate(batches)])
        )
