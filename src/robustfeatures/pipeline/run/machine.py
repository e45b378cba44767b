"""How torch computes on this machine, and what is recorded of the machine beside each result."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.reach import ROOT
from robustfeatures.pipeline.run.memory import keep_freed_memory

PACKAGES = ("torch", "numpy", "zarr", "scikit-learn", "safetensors", "snakemake")


def prepare_torch(threads: int, *, gpu_fast_path: bool = False) -> None:
    """Set how torch computes in this process; call it before anything else uses torch."""
    import torch

    from robustfeatures.engine.determinism import make_deterministic
    from robustfeatures.engine.fast_path import set_fast_path

    keep_freed_memory()
    torch.set_num_threads(threads)
    make_deterministic()
    set_fast_path(gpu_fast_path)


def describe_machine() -> dict[str, Any]:
    """The host, its cores, and the versions that are recorded beside each result."""
    return {
        "host": platform.node(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "git_commit": _git_commit(),
    }


def run_module(module: str, *arguments: str) -> str:
    """What a module of this package prints, run in a process of its own.

    Raises:
        UserError: it failed; the message is the last line that it wrote.
    """
    path = os.pathsep.join(filter(None, [str(ROOT.parent), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        # A process that was killed has written nothing.
        lines = done.stderr.strip().splitlines()
        raise UserError(lines[-1] if lines else f"{module} ended with status {done.returncode}")
    return done.stdout


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _git_commit() -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    found = subprocess.run(  # noqa: S603
        [git, "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or None
