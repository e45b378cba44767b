"""The training loop. All its random draws depend only on the seed, the epoch and the step."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from robustfeatures.engine.compilation import compile_module
from robustfeatures.engine.layout import choose_layout, convert_layout
from robustfeatures.engine.precision import autocast, warn_if_emulated
from robustfeatures.engine.randomness import derive_seed
from robustfeatures.errors import UserError
from robustfeatures.training.augmentation import Augmenter
from robustfeatures.training.optimiser import Optimiser, build_optimiser
from robustfeatures.training.probes import ProbeSet
from robustfeatures.training.schedules import Schedule, constant, one_cycle, step_drops

if TYPE_CHECKING:
    from robustfeatures.engine.batches import Batches
    from robustfeatures.engine.settings import Precision
    from robustfeatures.training.settings import Training

log = logging.getLogger(__name__)

# The loss is read after this many steps, because reading it waits for the device.
CHECK_LOSS_EVERY = 20

# (images, labels, seed of the random draws) -> perturbed images to train on.
Perturbation = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class HistoryRow:
    """The value of a probe after one epoch.

    epoch: counted from 1.
    probe: the name of the probe.
    network: the network that classifies the images: "itself", or the name of a transfer model.
    value: an accuracy from 0 to 1, or a performance correlation, which may be negative.
    loss: the mean training loss of the epoch.
    images: the number of images of the probe.
    """

    epoch: int
    probe: str
    network: str
    value: float
    loss: float
    images: int


def build_schedule(settings: Training, steps_per_epoch: int) -> Schedule:
    """Build the function from step to learning rate."""
    if settings.schedule == "one-cycle":
        return one_cycle(settings.learning_rate, settings.epochs * steps_per_epoch)
    if settings.schedule == "step":
        return step_drops(settings.learning_rate, [epoch * steps_per_epoch for epoch in settings.milestones])
    return constant(settings.learning_rate)


class Checkpoints(Protocol):
    """Saves and loads the state of a training."""

    def load(self, device: torch.device) -> dict[str, Any] | None:
        """Load the last saved state to `device`; None if there is none."""
        ...

    def is_due(self) -> bool:
        """Whether it is time to save; asked after every step."""
        ...

    def save(self, state: dict[str, Any]) -> None:
        """Save a state of tensors, numbers and lists; it replaces the last one."""
        ...


@dataclass
class Position:
    """The progress of a training: finished epochs, steps and summed loss of the current epoch, and the history."""

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

    If `perturbation` is given, each batch is perturbed first: adversarial training. With `compile`, torch compiles the
    network for the training steps. If there is a checkpoint, the training resumes from it; the final weights are bit
    for bit the ones of a training that was never interrupted. Torch's generator is seeded before each step.

    Raises:
        UserError: the loss or a final weight is not finite, or the network cannot train on a last batch of one image.
    """
    probes = tuple(probes)
    warn_if_emulated(images.device, precision)
    layout = choose_layout(network, images.device)
    network.to(memory_format=layout)  # type: ignore[call-overload]  # torch's stub lacks it
    network.train()
    _check_last_batch(network, images, settings.batch_size)
    finite = [name for name, values in network.state_dict().items() if values.isfinite().all()]
    forward = compile_module(network) if compile else network
    optimiser = build_optimiser(settings, network.parameters())
    optimiser.zero_grad()
    position = _resume(network, optimiser, checkpoints, images.device)
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
        due = [probe for probe in probes if probe.is_due(epoch + 1, settings.epochs)]
        position.history += [row for probe in due for row in _evaluate(probe, network, epoch + 1, mean_loss)]
        position = Position(epoch + 1, history=position.history)
        if checkpoints and checkpoints.is_due():
            checkpoints.save(_training_state(network, optimiser, position))
    network.eval()
    _check_weights(network, finite)
    return position.history


@dataclass(frozen=True, eq=False)
class _Run:
    """The constants of one training."""

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
        """Train from `position` to the end of its epoch; return the mean loss of the epoch."""
        count, size = len(self.images), self.settings.batch_size
        steps = math.ceil(count / size)
        rate = build_schedule(self.settings, steps)
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "order", position.epoch))
        order = torch.randperm(count, generator=generator)
        augmentation = self.settings.augmentation
        augment = augmentation and Augmenter(augmentation, count, generator, self.images.device)
        total = torch.full((), position.total, dtype=torch.float64, device=self.images.device)
        self.network.train()
        for rows, batch in self.images.batches(order[position.step * size :], size):
            inputs = augment(batch, rows) if augment else batch
            learning_rate = rate(position.epoch * steps + position.step)
            labels = self.labels[rows]
            if self.perturbation:
                inputs = self._perturb(inputs, labels, derive_seed(self.seed, "attack", position.epoch, position.step))
            # Layers such as dropout draw from torch's own generator.
            torch.manual_seed(derive_seed(self.seed, "layers", position.epoch, position.step))
            total += self._step(inputs, labels, learning_rate) * len(rows)
            position.step += 1
            self.progress(position.epoch * count + min(position.step * size, count), self.settings.epochs * count)
            is_due = self.checkpoints is not None and self.checkpoints.is_due()
            if position.step < steps and (is_due or position.step % CHECK_LOSS_EVERY == 0):
                position.total = _check_loss(total, position.epoch, position.step)
                if self.checkpoints and is_due:
                    self.checkpoints.save(_training_state(self.network, self.optimiser, position))
        return _check_loss(total, position.epoch, position.step) / count

    def _perturb(self, batch: Tensor, labels: Tensor, seed: int) -> Tensor:
        """Perturb the batch except for its first images, the share `natural`; the order of the images is random."""
        assert self.perturbation is not None
        # At least one image is perturbed.
        natural = min(round(self.settings.natural * len(batch)), len(batch) - 1)
        perturbed = self.perturbation(batch[natural:], labels[natural:], seed)
        return torch.cat([batch[:natural], perturbed]) if natural else perturbed

    def _step(self, batch: Tensor, labels: Tensor, learning_rate: float) -> Tensor:
        """Do one step on images (n, C, H, W) and labels (n,); return the mean loss."""
        with autocast(self.images.device, self.precision):
            loss = functional.cross_entropy(self.forward(convert_layout(batch, self.layout)), labels)
        torch.autograd.backward(loss)
        self.optimiser.step(learning_rate)
        # Here, so that the gradients take no memory during the next attack and forward pass.
        self.optimiser.zero_grad()
        return loss.detach()


def _check_last_batch(network: nn.Module, images: Batches, batch_size: int) -> None:
    """Check that the network can train on one image, if epochs end with one: batch norm may have no variance then."""
    if (len(images) - 1) % batch_size:
        return
    _, image = next(iter(images.batches(torch.zeros(1, dtype=torch.long), 1)))
    # Copies, because batch norm counts what it sees.
    weights = {name: values.clone() for name, values in network.state_dict().items()}
    try:
        with torch.no_grad():
            functional_call(network, weights, (image,))
    except ValueError as error:
        raise UserError(
            f"training.batch_size: an epoch ends with a batch of one image; choose another: {error}"
        ) from error


def _evaluate(probe: ProbeSet, network: nn.Module, epoch: int, mean_loss: float) -> list[HistoryRow]:
    values = probe.evaluate(network)
    return [HistoryRow(epoch, probe.name, name, value, mean_loss, len(probe.images)) for name, value in values.items()]


def _check_weights(network: nn.Module, names: Iterable[str]) -> None:
    """Check that these weights are finite, because the loss of the last step was computed before its update."""
    weights = network.state_dict()
    infinite = [name for name in names if not weights[name].isfinite().all()]
    if infinite:
        raise UserError(f"training: {infinite[0]} is not finite after the last step; lower training.learning_rate")


def _check_loss(total: Tensor, epoch: int, step: int) -> float:
    """Return the summed loss of the current epoch; if the loss of any step is not finite, neither is the sum."""
    loss = total.item()
    if not math.isfinite(loss):
        raise UserError(f"training: the loss is {loss} in epoch {epoch + 1}, step {step}; lower training.learning_rate")
    return loss


def _training_state(network: nn.Module, optimiser: Optimiser, position: Position) -> dict[str, Any]:
    return {
        "network": network.state_dict(),
        "optimiser": optimiser.state,
        "epoch": position.epoch,
        "step": position.step,
        "total": position.total,
        "history": [astuple(row) for row in position.history],
    }


def _resume(
    network: nn.Module, optimiser: Optimiser, checkpoints: Checkpoints | None, device: torch.device
) -> Position:
    state = checkpoints.load(device) if checkpoints else None
    if state is None:
        return Position()
    network.load_state_dict(state["network"])
    optimiser.restore(state["optimiser"])
    log.info("the training resumes from its checkpoint: %d epochs and %d steps are done", state["epoch"], state["step"])
    history = [HistoryRow(*row) for row in state["history"]]
    return Position(state["epoch"], state["step"], state["total"], history)
