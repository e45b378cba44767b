"""What the processes of tests/pipeline/run/test_processes.py do; in a module of its own, which they load quickly."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from pathlib import Path

from torch import distributed

from robustfeatures.errors import UserError

log = logging.getLogger(__name__)


def work(what: str) -> int:
    """Do something in the second process, while the first waits for it."""
    if distributed.get_rank() == 1:
        log.warning("the second has begun to %s", what)
        if what == "refuse":
            raise UserError("a field: is wrong")
        if what == "write":
            raise OSError(28, "No space left on device", "a file")
        if what == "divide":
            print(1 / 0)
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "ask":
            parent = multiprocessing.parent_process()
            assert parent is not None
            assert parent.pid is not None
            os.kill(parent.pid, signal.SIGTERM)
    distributed.barrier()
    return distributed.get_rank()


def wait_for_ever(folder: Path) -> None:
    (folder / str(os.getpid())).touch()
    time.sleep(600)
