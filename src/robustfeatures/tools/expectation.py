"""The time that a study will take on this machine, from a measured speed. It is in no recipe and asks for nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from robustfeatures.errors import UserError
from robustfeatures.measurements.registry import ATTACK_STEP
from robustfeatures.models.own_files import find_file, parse_own
from robustfeatures.pipeline.plan.estimates import (
    UPDATE,
    Estimate,
    assumed_rate,
    estimate,
    forward_operations,
    network_of,
)
from robustfeatures.pipeline.plan.sizes import original_data_size
from robustfeatures.pipeline.run.machine import run_module
from robustfeatures.pipeline.run.speed import Speed

if TYPE_CHECKING:
    from robustfeatures.engine.settings import Precision
    from robustfeatures.models.settings import Architecture
    from robustfeatures.pipeline.plan.plan import Plan
    from robustfeatures.pipeline.plan.recipe import Recipe
    from robustfeatures.pipeline.plan.tasks import Task
    from robustfeatures.pipeline.store.references import Artifacts
    from robustfeatures.pipeline.study.config import Config

# With shorter jobs nothing is measured.
LONG_SECONDS = 3600
SPEED_MODULE = "robustfeatures.pipeline.run.speed"

Measure = Callable[["Architecture", tuple[int, int, int], "Precision", str, int, int], Speed]


def measure_in_processes(
    architecture: Architecture,
    image_shape: tuple[int, int, int],
    precision: Precision,
    device: str,
    threads: int,
    at_once: int,
) -> Speed:
    """The mean of `measure_speed` in several processes at once, because jobs slow each other down.

    Raises:
        UserError: a process failed.
    """
    own = parse_own(architecture.name)
    given = {
        "own_file": None if own is None else str(find_file(own.file)),
        "architecture": {"name": architecture.name, "width": architecture.width},
        "image_shape": image_shape,
        "precision": precision,
        "device": device,
        "threads": threads,
    }
    try:
        with ThreadPoolExecutor(at_once) as pool:
            printed = list(pool.map(lambda _: run_module(SPEED_MODULE, json.dumps(given)), range(at_once)))
    except UserError as error:
        raise UserError(f"the speed of this machine could not be measured: {error}") from error
    found = [Speed(**json.loads(text)) for text in printed]
    return Speed(
        fmean(each.updates for each in found),
        fmean(each.attack_steps for each in found),
        any(each.emulated for each in found),
    )


def expect(
    plan: Plan,
    tasks: Iterable[Task],
    artifacts: Artifacts,
    config: Config,
    *,
    cores: int,
    device: str,
    gpus: int = 1,
    measure: Measure = measure_in_processes,
) -> str | None:
    """One line with the expected time of a plan's missing jobs; None if none of them has to compute for an hour.

    Whether one has to is known from the rate that the requests of jobs assume. Only then a speed is measured: that of
    the network with the most work, with the precision and the threads of its jobs. The time is that of training,
    attacking and evaluating alone. Attacks may take less, because they leave out images that are broken. Each part of a
    job counts as a job, and the one that joins them does not. `cores` are those of all jobs, `device` is "cpu" or
    "cuda". With "cuda" so many `gpus` compute at once. With "cpu" as many processes are measured as jobs of an hour run
    at once.
    """
    missing = [
        _Missing(task, count, [(recipe, estimate(recipe)) for recipe in map(plan.recipes.__getitem__, task.not_copied)])
        for task in tasks
        if (count := _count_jobs(task, artifacts))
    ]
    on_gpus, threads = device != "cpu", min(config.threads_per_job, cores)
    slow = [each for each in missing if each.assumed_seconds(threads, on_gpus=on_gpus) > LONG_SECONDS]
    if not slow:
        return None
    recipe, largest = max((found for each in missing for found in each.work), key=lambda found: found[1].operations)
    architecture, size = network_of(recipe), original_data_size(recipe)
    assert size is not None
    count = sum(each.jobs for each in missing)
    at_once = max(1, min(cores // threads, gpus)) if on_gpus else cores // threads
    measured = 1 if on_gpus else min(at_once, sum(each.jobs for each in slow))
    try:
        speed = measure(architecture, size.shape, largest.precision, device, threads, measured)
    except UserError as error:
        return f"{count} jobs, some of them long; {error}"
    per_forward = forward_operations(architecture, size.shape)
    hours = {each.task.name: each.hours(speed, per_forward, on_gpus=on_gpus) for each in missing}
    longest = max(missing, key=lambda each: hours[each.task.name])
    most = hours[longest.task.name]
    # A training on several GPUs takes all of them for its hours.
    places = sum(hours[each.task.name] * each.jobs * (each.processes if on_gpus else 1) for each in missing)
    part = "" if longest.task.parts == 1 else "each part of "
    return (
        f"{count} jobs, expected to take {max(places / at_once, most):.1f} h on this machine with {cores} cores; "
        f"the longest, {part}{longest.task.name}, {most:.1f} h. "
        f"{_describe_speed(speed, architecture, largest.precision, threads, measured)}"
    )


@dataclass(frozen=True)
class _Missing:
    """A task that still takes `jobs` jobs, and the work of its recipes."""

    task: Task
    jobs: int
    work: Sequence[tuple[Recipe, Estimate]]

    @property
    def processes(self) -> int:
        """The most processes that compute one of its recipes together."""
        return max((found.processes for _, found in self.work), default=1)

    def assumed_seconds(self, threads: int, *, on_gpus: bool) -> float:
        """The seconds of each of its parts at the rate that the requests of jobs assume."""
        return (
            sum(
                found.operations / assumed_rate(gpu=on_gpus, threads=threads, precision=found.precision)
                for _, found in self.work
            )
            / self.task.parts
        )

    def hours(self, speed: Speed, per_forward: float, *, on_gpus: bool) -> float:
        """The hours of each of its parts at a measured speed."""
        return (
            sum(_hours(found, speed, per_forward) / (found.processes if on_gpus else 1) for _, found in self.work)
            / self.task.parts
        )


def _describe_speed(speed: Speed, architecture: Architecture, precision: Precision, threads: int, at_once: int) -> str:
    """What was measured, with what."""
    where = "one process" if at_once == 1 else f"each of {at_once} processes at once"
    width = "" if architecture.width is None else f" of width {architecture.width}"
    line = (
        f"Measured in {where} with {threads} thread{'' if threads == 1 else 's'}: "
        f"{architecture.name}{width}, {precision}, "
        f"{speed.updates:.0f} images a second in training, {speed.attack_steps:.0f} in each step of an attack."
    )
    if speed.emulated:
        line += f" This machine emulates {precision}: with `precision: float32` the study takes less time here."
    return line


def _count_jobs(task: Task, artifacts: Artifacts) -> int:
    """The jobs that still compute for a task: itself, or those of its parts that are not finished."""
    if artifacts.reference(task.name).exists():
        return 0
    parts = artifacts.parts(task.name, task.parts)
    return sum(not path.exists() for path in parts) if parts else 1


def _hours(found: Estimate, speed: Speed, per_forward: float) -> float:
    """The hours of one artifact on one device.

    `per_forward` are the operations of one image's forward in the measured network.
    """
    attacking = (found.operations - found.updating) / ATTACK_STEP / speed.attack_steps
    return (attacking + found.updating / UPDATE / speed.updates) / per_forward / 3600
