"""Times of several implementations, measured in turns, so that other load on the machine affects all of them."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the wall-clock seconds of one call, including the queue of the device."""
    _wait(device)
    began = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - began


def side_by_side(ways: Mapping[str, Callable[[], object]], device: torch.device, rounds: int) -> dict[str, float]:
    """Return the seconds of the fastest of `rounds` calls of each; the first call also warms up."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            taken[name].append(seconds(work, device))
    return {name: min(times) for name, times in taken.items()}


def matrix_rate(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Return the floating-point operations per second of a square matrix product."""
    left, right = (torch.rand(size, size, device=device).to(dtype) for _ in range(2))
    (taken,) = side_by_side({"product": lambda: left @ right}, device, rounds=3).values()
    return 2 * size**3 / taken


def find_device_name(device: torch.device) -> str:
    """The model of the GPU or of the processor, as far as the system says."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def describe_machine(device: torch.device) -> str:
    """Describe the machine of the benchmark."""
    found = (
        f"{find_device_name(torch.device('cpu'))}, {os.cpu_count()} cores ({torch.backends.cpu.get_cpu_capability()})"
    )
    if device.type == "cuda":
        found = f"{find_device_name(device)}; {found}"
    return f"{found}; torch {torch.__version__}, {torch.get_num_threads()} threads"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
