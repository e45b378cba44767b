"""Which jobs of a plan use a GPU. The answer is found once, before work starts, and every job keeps to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from robustfeatures.errors import UserError
from robustfeatures.pipeline.run.gpus import VISIBLE, visible_gpus
from robustfeatures.pipeline.run.machine import run_module

if TYPE_CHECKING:
    from robustfeatures.pipeline.study.config import Config

# The UUIDs of the GPUs that torch can use, and why there are none.
Probe = Callable[[], tuple[list[str], str]]


def probe_torch() -> tuple[list[str], str]:
    """`find_gpus` in a process of its own, because nothing imports torch while a study is planned."""
    try:
        gpus, reason = json.loads(run_module("robustfeatures.pipeline.run.devices"))
    except UserError as error:
        return [], str(error)
    return gpus, reason


@dataclass(frozen=True)
class Devices:
    """The devices of a run.

    gpus_per_job: for each job that needs a GPU; 0 if all jobs use processors.
    gpus: the UUIDs of this machine's GPUs, which its jobs share; none if a scheduler gives each job its GPU.
    warning: what nvidia-smi and torch disagree on, or why the jobs of a scheduler will fail.
    error: why the run cannot start.
    """

    gpus_per_job: int
    gpus: tuple[str, ...] = ()
    warning: str | None = None
    error: str | None = None


def choose_devices(config: Config, *, is_local: bool, uses_conda: bool, probe: Probe = probe_torch) -> Devices:
    """The devices for jobs of this machine (`is_local`), or for those of a scheduler.

    Jobs of this machine get a GPU only if torch can use it. With `uses_conda` torch is that of an environment which may
    not be there yet, so it is not asked.
    """
    asked = config.gpus_per_job
    if config.device == "cpu":
        return Devices(0 if asked == "auto" else asked)
    if asked == 0:
        return Devices(0)
    seen = visible_gpus()
    if not is_local:
        each = int(config.device == "cuda" or asked == 1 or bool(seen))
        return Devices(each, warning=_lack_of_cuda() if each and not uses_conda else None)
    if not seen:
        if config.device == "auto":
            return Devices(0)
        none = "config.yaml: device: cuda, but nvidia-smi finds no GPU on this machine"
        return Devices(1, error=f"{none}; set device: auto, or name your GPUs in {VISIBLE}")
    found = f"nvidia-smi finds {len(seen)} GPU{'s' if len(seen) > 1 else ''}"
    if uses_conda:
        if config.device == "cuda":
            return Devices(1, tuple(seen))
        reason = "device: auto takes envs/cpu.yaml with --use-conda; set device: cuda to use them"
        return Devices(0, warning=f"{found}, but {reason}")
    gpus, reason = probe()
    if gpus:
        return Devices(1, tuple(gpus))
    if config.device == "auto":
        return Devices(0, warning=f"{found}, but torch can use none: {reason}; all jobs use processors")
    return Devices(1, error=f"config.yaml: device: cuda, and {found}, but torch can use none: {reason}")


def _lack_of_cuda() -> str | None:
    """A scheduler's jobs have the torch that is installed here, whose version ends in +cpu if it is the CPU build."""
    installed = version("torch")
    if not installed.endswith("+cpu"):
        return None
    return (
        f"torch {installed} is the CPU build, and the jobs of the cluster use it: those on GPUs will fail; "
        "install the CUDA build (docs/cluster.md)"
    )
