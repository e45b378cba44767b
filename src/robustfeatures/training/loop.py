"""Training: one loop for all, whose every draw follows from the seed and the epoch alone."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from robustfeatures.engine.precision import autocast, training_format
from robustfeatures.errors import UserError
from robustfeatures.randomness import split_seed
from robustfeatures.training.accuracy import accuracy
from robustfeatures.training.augmentation import Augmenter
from robustfeatures.training.optimiser import SGD
from robustfeatures.training.schedules import Schedule, constant, one_cycle, step_drops

if TYPE_CHECKING:
    from robustfeatures.engine.batches import Batches
    from robustfeatures.recipes.parameters import Precision, Training
    from robustfeatures.training.checkpoints import Checkpoints

log = logging.getLogger(__name__)

# Steps between two looks at the loss, each of which waits for the device.
LOOK_EVERY = 20

# (images, labels) -> images to train on instead.
Perturbation = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class ProbeSet:
    """Images and labels (N,) on which accuracy is taken after each epoch."""

    name: str
    images: Batches
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


@dataclass
class Position:
    """How far a training has come: whole epochs, steps and summed loss of the epoch under way, and the history."""

    epoch: int = 0
    step: int = 0
    total: float = 0.0
    history: list[HistoryRow] = field(default_factory=list)


def train(
    network: nn.Module,
    images: Batches,
    labels: Tensor,
    settings: Training,
    *,
    seed: int,
    precision: Precision = "float32",
    probes: Iterable[ProbeSet] = (),
    perturbation: Perturbation | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[HistoryRow]:
    """Train the network in place on `images` in [0, 1] and `labels` (N,); it is in eval mode on return.

    With `perturbation` each batch is replaced by what it returns: adversarial training. A run that finds a checkpoint
    goes on from it and ends with the same weights, bit for bit, as one that was never stopped.

    Raises:
        UserError: the loss, looked at every `LOOK_EVERY` steps, or a weight at the end is no longer finite.
    """
    probes = tuple(probes)
    steps_per_epoch = math.ceil(len(images) / settings.batch_size)
    rate = schedule(settings, steps_per_epoch)
    layout = training_format(network, images.image_shape[-1], images.device)
    network.to(memory_format=layout)  # type: ignore[call-overload]  # torch's stub lacks it
    optimiser = SGD(network.parameters(), momentum=settings.momentum, weight_decay=settings.weight_decay)
    position = _resumed(network, optimiser, checkpoints, images.device)
    total = torch.full((), position.total, dtype=torch.float64, device=images.device)
    for epoch in range(position.epoch, settings.epochs):
        generator = torch.Generator().manual_seed(split_seed(seed, "order", epoch))
        order = torch.randperm(len(images), generator=generator)
        augment = settings.augmentation and Augmenter(settings.augmentation, len(images), generator, images.device)
        network.train()
        for rows, batch in images.batches(order[position.step * settings.batch_size :], settings.batch_size):
            batch_labels = labels[rows]
            if augment:
                batch = augment(batch, rows)
            if perturbation:
                batch = perturbation(batch, batch_labels)
            with autocast(images.device, precision):
                loss = functional.cross_entropy(network(batch.contiguous(memory_format=layout)), batch_labels)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step(rate(epoch * steps_per_epoch + position.step))
            total += loss.detach() * len(rows)
            position.step += 1
            seen = epoch * len(images) + min(position.step * settings.batch_size, len(images))
            progress(seen, settings.epochs * len(images))
            due = checkpoints is not None and checkpoints.due()
            if position.step < steps_per_epoch and (due or position.step % LOOK_EVERY == 0):
                position.total = _finite(total, epoch, position.step)
                if checkpoints and due:
                    checkpoints.save(_state(network, optimiser, position))
        mean_loss = _finite(total, epoch, position.step) / len(images)
        total.zero_()
        for probe in probes:
            share = accuracy(network, probe.images, probe.labels, precision=precision)
            position.history.append(HistoryRow(epoch + 1, probe.name, share, mean_loss))
        position = Position(epoch + 1, history=position.history)
        if checkpoints and checkpoints.due():
            checkpoints.save(_state(network, optimiser, position))
    network.eval()
    _check_weights(network)
    return position.history


def _check_weights(network: nn.Module) -> None:
    """The last step may have been the one too many, after its loss was taken."""
    broken = [name for name, values in network.state_dict().items() if not values.isfinite().all()]
    if broken:
        raise UserError(f"training: {broken[0]} is not finite after the last step; lower training.learning_rate")


def _finite(total: Tensor, epoch: int, step: int) -> float:
    """The summed loss of an epoch under way, of which one loss that is not finite makes another such sum."""
    loss = total.item()
    if not math.isfinite(loss):
        raise UserError(f"training: the loss is {loss} in epoch {epoch + 1}, step {step}; lower training.learning_rate")
    return loss


def _state(network: nn.Module, optimiser: SGD, position: Position) -> dict[str, Any]:
    return {
        "network": network.state_dict(),
        "velocities": optimiser.velocities,
        "epoch": position.epoch,
        "step": position.step,
        "total": position.total,
        "history": [astuple(row) for row in position.history],
    }


def _resumed(network: nn.Module, optimiser: SGD, checkpoints: Checkpoints | None, device: torch.device) -> Position:
    state = checkpoints.load(device) if checkpoints else None
    if state is None:
        return Position()
    network.load_state_dict(state["network"])
    optimiser.velocities = state["velocities"]
    log.info("goes on from its checkpoint: %d epochs and %d steps are done", state["epoch"], state["step"])
    history = [HistoryRow(*row) for row in state["history"]]
    return Position(state["epoch"], state["step"], state["total"], history)
