"""Starts the commands it reads, one JSON list a line; when its input closes, ends all that came of them.

Slurm's job processes detach themselves from its daemons. As a subreaper this process inherits them, so that none of
them outlives it, whatever happened to the test process at the other end of the pipe.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

# From linux/prctl.h.
PR_SET_CHILD_SUBREAPER = 36


def reap(*_: object) -> None:
    """Collects every child that has ended; without it they would stay as zombies."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main(folder: Path) -> None:
    """Removes `folder` at the end; what the commands print goes to `<folder>/<name of the command>.out`."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin:
        command = json.loads(line)
        with (folder / f"{Path(command[0]).name}.out").open("ab") as output:
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    while children := psutil.Process().children(recursive=True):
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
