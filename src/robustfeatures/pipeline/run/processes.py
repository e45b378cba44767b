"""Several processes of this machine that compute one thing together, in one group of torch.distributed."""

from __future__ import annotations

import logging
import logging.handlers
import multiprocessing
import os
import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

from robustfeatures.errors import StoppedError, UserError
from robustfeatures.pipeline.run.requests import handle_requests

T = TypeVar("T")

log = logging.getLogger(__name__)

# How long one process waits for another, which may be writing a checkpoint to a slow disk.
PATIENCE = timedelta(hours=1)


class _Done(NamedTuple):
    """What the work of a process returned."""

    result: Any


def run_together(work: Callable[..., T], arguments: Sequence[Any], count: int, *, threads: int, gpus: bool) -> T:
    """Run `work(*arguments)` in `count` new processes at once, and return what the first returns.

    With `gpus` each process has one GPU as its current device, and the group uses nccl for tensors there; tensors on
    the processor use gloo. If one process fails, the others are ended. A request to end (SIGTERM or Ctrl-C) is passed
    on to the first process, which may finish something before it ends. `threads` are those of torch in each process.

    Raises:
        UserError, OSError: a process raised it.
        StoppedError: this process was asked to end.
        RuntimeError: a process ended otherwise; the log says how.
    """
    # torch would print a line per process on unused parameters that it was told to look for.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []
    listening: dict[Connection[Any, Any], int] = {}
    with TemporaryDirectory(prefix="robustfeatures-") as folder:
        try:
            for rank in range(count):
                receiver, sender = context.Pipe(duplex=False)
                given = (rank, count, Path(folder) / "meeting", sender, threads, gpus, work, arguments)
                processes.append(context.Process(target=_run, args=given, daemon=True))
                processes[-1].start()
                # Without another sender the pipe ends with its process.
                sender.close()
                listening[receiver] = rank
            with _pass_on_requests(processes[0]) as requests:
                outcomes = _listen(listening, processes)
        finally:
            _kill(processes)
    for outcome in outcomes.values():
        if isinstance(outcome, Exception):
            raise outcome
    if requests:
        raise StoppedError(f"stopped by {requests[0].name}; run again, and it goes on from what is finished")
    if len(outcomes) < count:
        codes = ", ".join(str(process.exitcode) for process in processes)
        raise RuntimeError(f"one of {count} processes failed; their exit codes are {codes}")
    result: T = outcomes[0].result
    return result


def _listen(listening: dict[Connection[Any, Any], int], processes: Sequence[BaseProcess]) -> dict[int, Any]:
    """What each process sent last, by rank: a `_Done` or an exception. One that was killed is missing.

    Messages of their logs go to the log of this process.
    """
    outcomes: dict[int, Any] = {}
    while listening:
        for connection in wait(list(listening)):
            assert isinstance(connection, Connection)
            rank = listening[connection]
            try:
                message = connection.recv()
            except (EOFError, OSError):
                del listening[connection]
                if not isinstance(outcomes.get(rank), _Done):
                    _kill(processes)
                continue
            if isinstance(message, logging.LogRecord):
                logger = logging.getLogger(message.name)
                if logger.isEnabledFor(message.levelno):
                    logger.handle(message)
            else:
                outcomes[rank] = message
    return dict(sorted(outcomes.items()))


def _kill(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


@contextmanager
def _pass_on_requests(first: BaseProcess) -> Iterator[list[signal.Signals]]:
    """Inside, pass requests to end on to the first process; they are listed in the order in which they came."""
    requests: list[signal.Signals] = []

    def pass_on(number: int, frame: object) -> None:
        requests.append(signal.Signals(number))
        first.terminate()

    with handle_requests(pass_on):
        yield requests


class _ToParent(logging.handlers.QueueHandler):
    """Sends log messages through a pipe."""

    def __init__(self, pipe: Connection[Any, Any]) -> None:
        super().__init__(queue.SimpleQueue())
        self.pipe = pipe

    def enqueue(self, record: logging.LogRecord) -> None:
        self.pipe.send(record)


def _run(
    rank: int,
    count: int,
    meeting: Path,
    sender: Connection[Any, Any],
    threads: int,
    gpus: bool,
    work: Callable[..., Any],
    arguments: Sequence[Any],
) -> None:
    """The life of one process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    root = logging.getLogger()
    root.handlers = [_ToParent(sender)]
    # What all processes do, one of them says.
    root.setLevel(logging.INFO if rank == 0 else logging.WARNING)
    try:
        _join_group(rank, count, meeting, threads, gpus=gpus)
        sender.send(_Done(work(*arguments)))
    except (UserError, OSError) as error:
        sender.send(error)
    except Exception:
        log.exception("process %d of %d failed", rank + 1, count)


def _end_with_parent() -> None:
    """End this process as soon as its parent has ended, even if that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


def _join_group(rank: int, count: int, meeting: Path, threads: int, *, gpus: bool) -> None:
    import torch
    from torch import distributed

    from robustfeatures.pipeline.run.machine import prepare_torch

    # The processes of one machine need no network.
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    for library in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", loopback)
    # `gpu_fast_path` stays off, because it was compared with the plain way on one GPU alone.
    prepare_torch(threads)
    if gpus:
        torch.cuda.set_device(rank)
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if gpus else "gloo",
        init_method=meeting.as_uri(),
        rank=rank,
        world_size=count,
        timeout=PATIENCE,
    )
