"""Compilation by torch, and CUDA graphs with it, where they were measured to pay on the device at hand."""

from __future__ import annotations

import copy
import logging
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from robustfeatures.engine.precision import autocast, laid_out
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.engine.settings import Precision

log = logging.getLogger(__name__)

# Floating point operations of a job, as estimated, that make it worth a minute or two of measuring and compiling.
WORTH_MEASURING = {"cpu": 1e15, "cuda": 1e17}
# Compiling costs time in every job, and a choice on the edge would fall this way here and that way there.
LARGEST_SHARE = 0.9
# How far gradients may lie from those of the eager network, as a share of their length: rounding, not another function.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1}
# Gradients of each way in a round, and rounds.
EACH_ROUND, ROUNDS = 3, 10

EAGER = "eager"
# What torch.compile is told for each way of computing: never to choose kernels by their time, which differs from run
# to run.
WAYS: dict[str, dict[str, dict[str, Any]]] = {
    "cpu": {"compiled": {"deterministic": True}},
    "cuda": {
        "compiled": {"deterministic": True},
        "compiled, CUDA graphs": {"deterministic": True, "triton.cudagraphs": True},
    },
}

Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Compilation:
    """What a job brings to the choice: its estimated floating point operations, and where choices are remembered.

    `remembered` takes a question, as JSON values, and what answers it, and gives the first answer that any job with the
    same store has found: so the jobs that share one agree in every bit of their results. That holds for one version of
    `recipes.estimates`, which says how many operations a job has and is part of no digest.
    """

    operations: float
    remembered: Callable[[Mapping[str, Any], Callable[[], dict[str, Any]]], dict[str, Any]]

    def compiled(
        self, module: nn.Module, shape: tuple[int, ...], layout: torch.memory_format, precision: Precision
    ) -> ForOneShape | None:
        """The module compiled for gradients on float32 batches of `shape` (N, C, H, W) in that layout, if that pays.

        The gradients are those by the module's parameters, or by the images where these are frozen. The module stays
        as it is; what is compiled follows its weights.
        """
        # A linear classifier has no parameters before its head.
        device = next((parameter.device for parameter in module.parameters()), None)
        if device is None or self.operations < WORTH_MEASURING[device.type]:
            return None
        question = {
            "device": device_name(device),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "module": str(module),
            "training": module.training,
            "frozen": not _trained(module),
            "batch": list(shape),
            "layout": str(layout),
            "precision": precision,
            "ways": WAYS[device.type],
        }
        seconds = self.remembered(question, lambda: {"seconds": measured(module, shape, layout, precision)})["seconds"]
        way = chosen(seconds)
        times = ", ".join(f"{name} {taken:.4f} s" for name, taken in seconds.items())
        log.info("a gradient of %d images takes: %s; it is computed %s", shape[0], times, way)
        return None if way == EAGER else ForOneShape(module, shape, WAYS[device.type][way])


def chosen(seconds: Mapping[str, float]) -> str:
    """The fastest way, if it takes clearly less time than the eager one."""
    best = min(seconds, key=lambda way: seconds[way])
    return best if seconds[best] <= LARGEST_SHARE * seconds[EAGER] else EAGER


class ForOneShape:
    """A module compiled for gradients on batches of one shape; whatever else it is asked, it computes as it is."""

    def __init__(self, module: nn.Module, shape: tuple[int, ...], options: Mapping[str, Any]) -> None:
        # What was compiled before in this process must not count towards torch's limit, beyond which it gives up.
        torch.compiler.reset()
        self.module = module
        self.shape = torch.Size(shape)
        self.compiled: Forward = torch.compile(module, dynamic=False, options=dict(options))

    def __call__(self, images: Tensor) -> Tensor:
        """What the module makes of the images.

        Raises:
            UserError: they have the shape, and torch's compiler fails.
        """
        if images.shape != self.shape or not torch.is_grad_enabled():
            result: Tensor = self.module(images)
            return result
        try:
            # A CUDA graph will write its next result to the same place.
            return self.compiled(images).clone()
        except Exception as error:
            # Not eager instead, for that would change bits from one job to another.
            raise UserError(
                f"torch.compile: {_first_line(error)}; it worked where this was measured: mend it here, or remove "
                "`.measured` from the store, and run again"
            ) from error


def measured(
    module: nn.Module, shape: tuple[int, ...], layout: torch.memory_format, precision: Precision
) -> dict[str, float]:
    """The seconds that a gradient takes each way; those ways are left out that fail or find another gradient."""
    # Here, for few jobs get so far.
    from torch.utils.benchmark import Timer

    device = next(module.parameters()).device
    # A copy, for batch norms that train move their running statistics.
    twin = copy.deepcopy(module)
    pixels = torch.linspace(0, 1, torch.Size(shape).numel(), device=device)
    images = laid_out(pixels.view(shape), layout)
    gradients = {EAGER: partial(_gradient, twin, twin, images, precision)}
    expected = gradients[EAGER]()
    compiled = {way: ForOneShape(twin, shape, options) for way, options in WAYS[device.type].items()}
    for way, forward in compiled.items():
        gradient = partial(_gradient, twin, forward, images, precision)
        try:
            distance = ((gradient() - expected).norm() / expected.norm()).item()
        except Exception as error:
            # Whatever a compiler stumbles over: nothing depends on it.
            log.warning("%s: %s; so it is not used", way, _first_line(error.__cause__ or error))
        else:
            if distance <= TOLERANCE[precision]:
                gradients[way] = gradient
            else:
                log.warning("%s: gradients differ by %.2g of their length, so it is not used", way, distance)
    timers = {
        way: Timer("gradient()", globals={"gradient": gradient}, num_threads=torch.get_num_threads())
        for way, gradient in gradients.items()
    }
    # In turns, so that a busy machine is busy for all.
    rounds = [{way: timer.timeit(EACH_ROUND).mean for way, timer in timers.items()} for _ in range(ROUNDS)]
    torch.compiler.reset()
    return {way: min(taken[way] for taken in rounds) for way in timers}


def device_name(device: torch.device) -> str:
    """The model of a GPU or processor, as far as it is known."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _gradient(module: nn.Module, forward: Forward, images: Tensor, precision: Precision) -> Tensor:
    """The gradient of the squared result, all of it in one row."""
    trained = _trained(module)
    leaf = images.detach().requires_grad_(not trained)
    with autocast(images.device, precision):
        result = forward(leaf)
    gradients = torch.autograd.grad(result.float().square().sum(), trained or leaf)
    return torch.cat([gradient.flatten() for gradient in gradients])
