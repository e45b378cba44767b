"""Training: one loop for all, whose every draw follows from the seed and the epoch alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from robustfeatures.errors import UserError
from robustfeatures.randomness import split_seed
from robustfeatures.training.accuracy import accuracy
from robustfeatures.training.augmentation import shift
from robustfeatures.training.checkpoints import Checkpoints
from robustfeatures.training.optimiser import SGD
from robustfeatures.training.schedules import Schedule, constant, one_cycle, step_drops

if TYPE_CHECKING:
    from robustfeatures.recipes.parameters import Training

# (network, images, labels) -> images to train on instead.
Perturbation = Callable[[nn.Module, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class ProbeSet:
    """Images (N, C, H, W) and labels (N,) on which accuracy is taken after each epoch."""

    name: str
    images: Tensor
    labels: Tensor


@dataclass(frozen=True)
class HistoryRow:
    """One probe after one epoch, counted from 1; `accuracy` from 0 to 1, `loss` the epoch's mean training loss."""

    epoch: int
    probe: str
    accuracy: float
    loss: float


def schedule(settings: Training, steps_per_epoch: int) -> Schedule:
    """The learning rate of each step that the settings ask for."""
    if settings.schedule == "one-cycle":
        return one_cycle(settings.learning_rate, settings.epochs * steps_per_epoch)
    if settings.schedule == "step":
        return step_drops(settings.learning_rate, [epoch * steps_per_epoch for epoch in settings.milestones])
    return constant(settings.learning_rate)


def train(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    settings: Training,
    *,
    seed: int,
    probes: Iterable[ProbeSet] = (),
    perturbation: Perturbation | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> list[HistoryRow]:
    """Train the network in place on `images` (N, C, H, W) in [0, 1] and `labels` (N,); it is in eval mode on return.

    With `perturbation` each batch is replaced by what it returns: adversarial training. A run that finds a checkpoint
    goes on from it and ends with the same weights, bit for bit, as one that was never stopped.

    Raises:
        UserError: the loss is no longer finite.
    """
    probes = tuple(probes)
    steps_per_epoch = math.ceil(len(images) / settings.batch_size)
    rate = schedule(settings, steps_per_epoch)
    optimiser = SGD(network.parameters(), momentum=settings.momentum, weight_decay=settings.weight_decay)
    history: list[HistoryRow] = []
    state = checkpoints.load() if checkpoints else None
    if state:
        network.load_state_dict(state["network"])
        optimiser.velocities = state["velocities"]
        history = [HistoryRow(*row) for row in state["history"]]
    for epoch in range(state["epoch"] if state else 0, settings.epochs):
        generator = torch.Generator().manual_seed(split_seed(seed, "order", epoch))
        order = torch.randperm(len(images), generator=generator).to(images.device)
        total = torch.zeros((), device=images.device)
        network.train()
        for step, batch in enumerate(torch.split(order, settings.batch_size), start=epoch * steps_per_epoch):
            batch_images, batch_labels = images[batch], labels[batch]
            if settings.augmentation == "shift":
                batch_images = shift(batch_images, generator)
            if perturbation:
                batch_images = perturbation(network, batch_images, batch_labels)
            loss = functional.cross_entropy(network(batch_images), batch_labels)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step(rate(step))
            total += loss.detach() * len(batch)
        mean_loss = (total / len(images)).item()
        if not math.isfinite(mean_loss):
            raise UserError(f"training: the loss is {mean_loss} in epoch {epoch + 1}; lower training.learning_rate")
        history += [
            HistoryRow(epoch + 1, probe.name, accuracy(network, probe.images, probe.labels), mean_loss)
            for probe in probes
        ]
        progress((epoch + 1) / settings.epochs)
        if checkpoints:
            checkpoints.save(
                {
                    "epoch": epoch + 1,
                    "network": network.state_dict(),
                    "velocities": optimiser.velocities,
                    "history": [(row.epoch, row.probe, row.accuracy, row.loss) for row in history],
                }
            )
    network.eval()
    return history
