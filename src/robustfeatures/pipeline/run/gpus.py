"""The GPUs of this machine and which of them a job may use. Imports no torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from robustfeatures.errors import UserError
from robustfeatures.files import name_user

VISIBLE = "CUDA_VISIBLE_DEVICES"
WAIT_SECONDS = 0.5


def visible_gpus() -> list[str]:
    """The GPUs that this process may use: by UUID, or as CUDA_VISIBLE_DEVICES names them."""
    if VISIBLE in os.environ:
        return [name for name in os.environ[VISIBLE].split(",") if name.strip() not in ("", "-1")]
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    found = subprocess.run(  # noqa: S603
        [command, "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return found.stdout.split() if found.returncode == 0 else []


def hide_gpus() -> None:
    """Show this process no GPU."""
    os.environ[VISIBLE] = ""


def check_enough(count: int, names: Sequence[str]) -> None:
    """Check that a training does not need more GPUs than this machine has.

    Raises:
        UserError: it does.
    """
    if count > len(names):
        raise UserError(f"training.gpus_per_training: {count} GPUs are needed, but this machine has {len(names)}")


@contextmanager
def take_gpus(count: int, uuids: Sequence[str], jobs_per_gpu: int = 1) -> Iterator[None]:
    """Show this process exactly `count` of these GPUs; waits for them. At most `jobs_per_gpu` jobs of a user share one.

    A lock has the UUID of its GPU in its name, because processes may number the same GPUs differently.

    Raises:
        UserError: there are fewer GPUs.
    """
    check_enough(count, uuids)
    folder = Path(tempfile.gettempdir()) / f"robustfeatures-{name_user(os.getuid())}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as locks:
        while not (taken := _take_free(count, uuids, jobs_per_gpu, folder, locks)):
            time.sleep(WAIT_SECONDS)
        os.environ[VISIBLE] = ",".join(taken)
        yield


def _take_free(count: int, uuids: Sequence[str], jobs_per_gpu: int, folder: Path, locks: ExitStack) -> list[str]:
    """The UUIDs of `count` free GPUs, locked until `locks` ends; none if fewer are free."""
    taken: list[str] = []
    # A GPU without a job comes before one with a job.
    places = [(uuid, place) for place in range(jobs_per_gpu) for uuid in uuids]
    # One job at a time, so that no two jobs each hold a part of what both need.
    with FileLock(folder / "choosing.lock"), ExitStack() as mine:
        for uuid, place in places:
            if len(taken) < count and uuid not in taken:
                with suppress(Timeout):
                    mine.enter_context(FileLock(folder / f"{uuid}-{place}.lock", timeout=0))
                    taken.append(uuid)
        if len(taken) < count:
            return []
        locks.enter_context(mine.pop_all())
    return taken
