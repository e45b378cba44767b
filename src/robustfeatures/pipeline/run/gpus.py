"""The GPUs of this machine and which of them a job may use. Imports no torch."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

VISIBLE = "CUDA_VISIBLE_DEVICES"
WAIT_SECONDS = 0.5


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, by number or identifier, as CUDA_VISIBLE_DEVICES names them."""
    if VISIBLE in os.environ:
        return [name for name in os.environ[VISIBLE].split(",") if name.strip() not in ("", "-1")]
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    found = subprocess.run(  # noqa: S603
        [command, "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return found.stdout.split() if found.returncode == 0 else []


@contextmanager
def hide_gpus() -> Iterator[None]:
    """Show this process no GPU."""
    os.environ[VISIBLE] = ""
    yield


@contextmanager
def take_gpu() -> Iterator[None]:
    """Show this process exactly one GPU, which no other job of this user has taken; waits until one is free.

    Without GPUs nothing happens.
    """
    names = visible_gpus()
    if not names:
        yield
        return
    folder = Path(tempfile.gettempdir()) / f"robustfeatures-{getpass.getuser()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    while True:
        for name in names:
            try:
                with FileLock(folder / f"gpu-{name}.lock", timeout=0):
                    os.environ[VISIBLE] = name
                    yield
                    return
            except Timeout:
                continue
        time.sleep(WAIT_SECONDS)
