"""Training: one loop for all, whose every draw follows from the seed and the epoch alone."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from robustfeatures.engine.compilation import compile_module
from robustfeatures.engine.precision import autocast, choose_layout, convert_layout, warn_if_emulated
from robustfeatures.engine.randomness import derive_seed
from robustfeatures.errors import UserError
from robustfeatures.training.augmentation import Augmenter
from robustfeatures.training.optimiser import Optimiser, optimiser_of
from robustfeatures.training.probes import ProbeSet
from robustfeatures.training.schedules import Schedule, constant, one_cycle, step_drops

if TYPE_CHECKING:
    from robustfeatures.engine.batches import Batches
    from robustfeatures.engine.settings import Precision
    from robustfeatures.training.settings import Training

log = logging.getLogger(__name__)

# Steps between two looks at the loss, each of which waits for the device.
LOOK_EVERY = 20

# (images, labels, seed of its draws) -> images to train on instead.
Perturbation = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class HistoryRow:
    """A probe's value after one epoch, counted from 1, on so many images; `loss` is the epoch's mean training loss.

    `network` is the one that classifies: "itself", or another one which the probe shows the same adversarial examples.
    An accuracy is a share from 0 to 1; a performance correlation may be negative.
    """

    epoch: int
    probe: str
    network: str
    value: float
    loss: float
    images: int


def schedule(settings: Training, steps_per_epoch: int) -> Schedule:
    """The learning rate of each step that the settings ask for."""
    if settings.schedule == "one-cycle":
        return one_cycle(settings.learning_rate, settings.epochs * steps_per_epoch)
    if settings.schedule == "step":
        return step_drops(settings.learning_rate, [epoch * steps_per_epoch for epoch in settings.milestones])
    return constant(settings.learning_rate)


class Checkpoints(Protocol):
    """Where the state of a training is kept between two steps."""

    def load(self, device: torch.device) -> dict[str, Any] | None:
        """The state that was saved last, on `device`; None where there is none."""
        ...

    def is_due(self) -> bool:
        """Whether it is time to save; asked after every step."""
        ...

    def save(self, state: dict[str, Any]) -> None:
        """Keep a state of tensors, numbers and lists in place of the last one."""
        ...


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
    compile: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[HistoryRow]:
    """Train the network in place on `images` in [0, 1] and `labels` (N,); it is in eval mode on return.

    With `perturbation` each batch is replaced by what it returns: adversarial training. With `compile` torch compiles
    the network for its training steps. A run that finds a checkpoint goes on from it and ends with the same weights,
    bit for bit, as one that was never stopped.

    Raises:
        UserError: the loss, looked at every `LOOK_EVERY` steps, or a weight at the end is no longer finite.
    """
    probes = tuple(probes)
    warn_if_emulated(images.device, precision)
    layout = choose_layout(network, images.device)
    network.to(memory_format=layout)  # type: ignore[call-overload]  # torch's stub lacks it
    network.train()
    forward = compile_module(network) if compile else network
    optimiser = optimiser_of(settings, network.parameters())
    position = _resumed(network, optimiser, checkpoints, images.device)
    run = _Run(
        network,
        forward,
        images,
        labels,
        settings,
        seed,
        precision,
        perturbation,
        checkpoints,
        progress,
        layout,
        optimiser,
    )
    for epoch in range(position.epoch, settings.epochs):
        mean_loss = run.epoch(position)
        for probe in probes:
            if probe.due(epoch + 1, settings.epochs):
                values = probe.take(network)
                position.history += [
                    HistoryRow(epoch + 1, probe.name, name, value, mean_loss, len(probe.images))
                    for name, value in values.items()
                ]
        position = Position(epoch + 1, history=position.history)
        if checkpoints and checkpoints.is_due():
            checkpoints.save(_state(network, optimiser, position))
    network.eval()
    _check_weights(network)
    return position.history


@dataclass(frozen=True, eq=False)
class _Run:
    """What stays the same from epoch to epoch of one training."""

    network: nn.Module
    forward: Callable[[Tensor], Tensor]
    images: Batches
    labels: Tensor
    settings: Training
    seed: int
    precision: Precision
    perturbation: Perturbation | None
    checkpoints: Checkpoints | None
    progress: Callable[[int, int], None]
    layout: torch.memory_format
    optimiser: Optimiser

    def epoch(self, position: Position) -> float:
        """Train from `position` to the end of its epoch; the mean loss of the epoch."""
        count, size = len(self.images), self.settings.batch_size
        steps = math.ceil(count / size)
        rate = schedule(self.settings, steps)
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "order", position.epoch))
        order = torch.randperm(count, generator=generator)
        augmentation = self.settings.augmentation
        augment = augmentation and Augmenter(augmentation, count, generator, self.images.device)
        total = torch.full((), position.total, dtype=torch.float64, device=self.images.device)
        self.network.train()
        for rows, batch in self.images.batches(order[position.step * size :], size):
            shown = augment(batch, rows) if augment else batch
            learning_rate = rate(position.epoch * steps + position.step)
            labels = self.labels[rows]
            if self.perturbation:
                shown = self._perturbed(shown, labels, derive_seed(self.seed, "attack", position.epoch, position.step))
            total += self._step(shown, labels, learning_rate) * len(rows)
            position.step += 1
            self.progress(position.epoch * count + min(position.step * size, count), self.settings.epochs * count)
            due = self.checkpoints is not None and self.checkpoints.is_due()
            if position.step < steps and (due or position.step % LOOK_EVERY == 0):
                position.total = _finite(total, position.epoch, position.step)
                if self.checkpoints and due:
                    self.checkpoints.save(_state(self.network, self.optimiser, position))
        return _finite(total, position.epoch, position.step) / count

    def _perturbed(self, batch: Tensor, labels: Tensor, seed: int) -> Tensor:
        """The batch without its natural share, whose place in it is random, perturbed."""
        assert self.perturbation is not None
        natural = int(self.settings.natural * len(batch))
        perturbed = self.perturbation(batch[natural:], labels[natural:], seed)
        return torch.cat([batch[:natural], perturbed]) if natural else perturbed

    def _step(self, batch: Tensor, labels: Tensor, learning_rate: float) -> Tensor:
        """One step on images (n, C, H, W) and labels (n,); its mean loss."""
        try:
            with autocast(self.images.device, self.precision):
                loss = functional.cross_entropy(self.forward(convert_layout(batch, self.layout)), labels)
        except ValueError as error:
            if len(batch) > 1:
                raise
            raise UserError(
                f"training.batch_size: an epoch ends with a batch of one image; choose another: {error}"
            ) from error
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        self.optimiser.step(learning_rate)
        return loss.detach()


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


def _state(network: nn.Module, optimiser: Optimiser, position: Position) -> dict[str, Any]:
    return {
        "network": network.state_dict(),
        "optimiser": optimiser.state,
        "epoch": position.epoch,
        "step": position.step,
        "total": position.total,
        "history": [astuple(row) for row in position.history],
    }


def _resumed(
    network: nn.Module, optimiser: Optimiser, checkpoints: Checkpoints | None, device: torch.device
) -> Position:
    state = checkpoints.load(device) if checkpoints else None
    if state is None:
        return Position()
    network.load_state_dict(state["network"])
    optimiser.restore(state["optimiser"])
    log.info("goes on from its checkpoint: %d epochs and %d steps are done", state["epoch"], state["step"])
    history = [HistoryRow(*row) for row in state["history"]]
    return Position(state["epoch"], state["step"], state["total"], history)
