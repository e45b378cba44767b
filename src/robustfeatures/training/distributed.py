"""One training in several processes of a machine, each with its share of every batch.

In each process `training/loop.py` trains a copy of the network. torch's DistributedDataParallel averages the gradients,
so that all copies stay equal. The processes are those of torch's default group, and each calls the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from robustfeatures.engine.layout import choose_layout
from robustfeatures.engine.randomness import derive_seed
from robustfeatures.errors import UserError
from robustfeatures.training import loop
from robustfeatures.training.loop import Checkpoints, HistoryRow, Perturbation

if TYPE_CHECKING:
    from robustfeatures.engine.batches import Batches
    from robustfeatures.engine.settings import Precision
    from robustfeatures.training.probes import ProbeSet
    from robustfeatures.training.settings import Training


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
    """Train as `loop.train` does, with the gradients and batch norms of the whole batch in every process.

    Every process measures the probes, so that none has to wait for another. Up to rounding, standard training gives the
    weights of one process. The adversary attacks each share by itself: its random starts and the images that it spares
    are not those of one process.

    Raises:
        UserError: as `loop.train`; or the last batch of an epoch has fewer images than there are processes, or the
            network has a batch norm of another class than torch's.
    """
    share = ShareOfBatches(images, settings.batch_size)
    with synchronised_batch_norms(network):
        # DistributedDataParallel needs the final layout of the weights.
        network.to(memory_format=choose_layout(network, images.device))  # type: ignore[call-overload]  # as in loop.py
        # Without `find_unused_parameters` torch regroups the gradients after the first step. A resumed training would
        # then add them in another order, which changes their last bits.
        parallel = DistributedDataParallel(network, forward_sync_buffers=False, find_unused_parameters=True)
        parallel.register_forward_hook(share.weigh)
        parallel.register_forward_pre_hook(_draw_layers_per_process)
        history = loop.train(
            parallel,
            share,
            labels,
            settings,
            seed=seed,
            precision=precision,
            probes=probes,
            perturbation=None if perturbation is None else _draw_per_process(perturbation),
            checkpoints=None if checkpoints is None else CommonCheckpoints(checkpoints),
            compile=compile,
            progress=progress,
        )
    return _sum_losses(history)


class ShareOfBatches:
    """The images of this process: an equal part of every batch. The last batch of an epoch may not divide evenly."""

    def __init__(self, images: Batches, batch_size: int) -> None:
        """`images` are those of all processes, as is `batch_size`.

        Raises:
            UserError: the last batch of an epoch has fewer images than there are processes.
        """
        last, processes = len(images) % batch_size, dist.get_world_size()
        if 0 < last < processes:
            raise UserError(
                f"training.gpus_per_training: an epoch ends with a batch of {last} images, too few for {processes} "
                "processes; choose another training.batch_size"
            )
        self.images = images
        self.device = images.device
        self.image_shape = images.image_shape
        self.weight = 1.0

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        processes, batches = dist.get_world_size(), torch.split(order, size)
        mine = torch.cat([batch.tensor_split(processes)[dist.get_rank()] for batch in batches])
        for batch, (rows, images) in zip(batches, self.images.batches(mine, size // processes), strict=True):
            self.weight = processes * len(rows) / len(batch)
            yield rows, images

    def weigh(self, network: nn.Module, inputs: Any, logits: Tensor) -> None:
        """A forward hook: scale the gradient of this share's mean loss by the share's number of images.

        DistributedDataParallel averages the gradients of all processes with equal weights, which is right for equal
        shares alone.
        """
        weight = self.weight
        if logits.requires_grad and weight != 1:
            logits.register_hook(lambda gradient: weight * gradient)  # type: ignore[no-untyped-call]


class CommonCheckpoints:
    """The checkpoints of all processes: the first one decides when to save, and saves; each one loads.

    All processes have the same weights, but each has the summed loss of its own share.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints = checkpoints

    def load(self, device: torch.device) -> dict[str, Any] | None:
        state = self.checkpoints.load(device)
        return None if state is None else {**state, **state["processes"][dist.get_rank()]}

    def is_due(self) -> bool:
        due = torch.tensor(dist.get_rank() == 0 and self.checkpoints.is_due())
        dist.broadcast(due, src=0)
        return bool(due)

    def save(self, state: dict[str, Any]) -> None:
        own: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(own, {name: state[name] for name in ("total", "history")})
        if dist.get_rank() == 0:
            self.checkpoints.save({**state, "processes": own})


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return _sum(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _sum(gradient)


def _sum(values: Tensor) -> Tensor:
    total = values.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


def sum_over_processes(values: Tensor) -> Tensor:
    """The sum of a tensor over all processes; the gradients of all processes flow back."""
    total: Tensor = _Sum.apply(values)  # type: ignore[no-untyped-call]
    return total


class SynchronisedBatchNorm(_BatchNorm):
    """Batch norm with the statistics of the whole batch, as one process would have them.

    Statistics of each share apart would be noisier, and the weights would not be those of one process. The result would
    depend on the number of GPUs far more than by rounding, above all with small shares. torch's SyncBatchNorm does the
    same on GPUs alone. This one is the same arithmetic with gloo on processors and nccl on GPUs, so tests without a GPU
    cover it.
    """

    # torch.fx takes the layers of torch.nn as they are.
    __module__ = "torch.nn.synchronised"

    def forward(self, images: Tensor) -> Tensor:
        """Normalise values (n, C, ...) of this share."""
        if not self.training:
            return super().forward(images)
        values = images.float() if images.dtype == torch.bfloat16 else images
        dimensions = [0, *range(2, values.dim())]
        shape = (1, -1, *[1] * (values.dim() - 2))
        count = _sum(values.new_tensor(values.numel() / values.shape[1]))
        mean = sum_over_processes(values.sum(dimensions)) / count
        centred = values - mean.view(shape)
        variance = sum_over_processes(centred.square().sum(dimensions)) / count
        self._update_statistics(mean.detach(), variance.detach() * count / (count - 1))
        normalised = centred * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            normalised = normalised * self.weight.view(shape) + self.bias.view(shape)
        result: Tensor = normalised.to(images.dtype)
        return result

    def _check_input_dim(self, input: Tensor) -> None:
        """Values of any number of dimensions are allowed."""

    @torch.no_grad()
    def _update_statistics(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics, each of shape (C,), as torch does."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        new = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        for running, found in ((self.running_mean, mean), (self.running_var, variance)):
            running.copy_((1 - new) * running + new * found)


@contextmanager
def synchronised_batch_norms(network: nn.Module) -> Iterator[None]:
    """Inside, the batch norms of the network are synchronised in training mode.

    Raises:
        UserError: the network has a batch norm of another class than torch's, which may do more.
    """
    found = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    classes = [type(module) for module in found]
    for kind in classes:
        if kind not in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
            raise UserError(
                f"training.gpus_per_training: the network has a {kind.__name__}, which cannot be synchronised; "
                "leave the field out"
            )
    for module in found:
        module.__class__ = SynchronisedBatchNorm
    try:
        yield
    finally:
        for module, kind in zip(found, classes, strict=True):
            module.__class__ = kind


def _draw_layers_per_process(*_: object) -> None:
    """Let layers draw other values in each process: dropout must not drop the same ones in every share."""
    torch.manual_seed(derive_seed(torch.initial_seed(), "process", dist.get_rank()))


def _draw_per_process(perturbation: Perturbation) -> Perturbation:
    """The perturbation with other random draws in each process."""

    def perturb(images: Tensor, labels: Tensor, seed: int) -> Tensor:
        return perturbation(images, labels, derive_seed(seed, "process", dist.get_rank()))

    return perturb


def _sum_losses(history: list[HistoryRow]) -> list[HistoryRow]:
    """The history with the loss of all shares. Each process has divided the sum over its share by all images."""
    losses = torch.tensor([row.loss for row in history], dtype=torch.float64)
    dist.all_reduce(losses)
    return [replace(row, loss=loss) for row, loss in zip(history, losses.tolist(), strict=True)]
