"""Processes for tests that start many of them: a `python` whose libraries were imported beforehand.

`robustfeatures` in a process of its own takes seconds to import torch and zarr, and a test that builds a study starts
dozens. A server imports the libraries once, never this package, and forks for each process that is asked for. Folder,
environment, arguments, priority, standard streams, signals and exit status are those of the client, `bin/python`, which
stands before the real one on the PATH of the workflow under test; it hands anything but `-m robustfeatures` and
`-m snakemake` to the real one. Tests of what processes import, of real signals, of Slurm and of conda start real ones.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from functools import cache
from pathlib import Path
from typing import NoReturn

LIBRARIES = (
    *("torch", "torch.fx", "torch.func", "numpy", "pandas", "zarr", "safetensors.torch", "sklearn.datasets"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_pdf"),
    *("pydantic", "typer", "filelock", "jinja2", "scipy.stats", "yaml"),
    *("snakemake.cli", "snakemake.api", "snakemake.workflow", "snakemake.dag", "snakemake.scheduling.job_scheduler"),
)
MODULES = ("robustfeatures", "snakemake")
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LONGEST_REQUEST = 1 << 20

CLIENT = """#!{python} -IS
import json, os, signal, socket, sys

if sys.argv[1:2] != ["-m"] or sys.argv[2:3] not in {modules}:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({address!r})
request = {{"folder": os.getcwd(), "environment": dict(os.environ), "arguments": sys.argv[2:], "nice": os.nice(0)}}
socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
for number in {forwarded}:
    signal.signal(number, lambda number, frame: server.send(bytes([number])))
ended = server.recv(16)
status = int(ended) if ended else 1
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


@cache
def python() -> Path:
    """The client, of a server that ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    address = folder / "socket"
    client = folder / "bin" / "python"
    client.parent.mkdir()
    client.write_text(
        CLIENT.format(
            python=sys.executable,
            modules=[[module] for module in MODULES],
            address=str(address),
            forwarded=[int(number) for number in FORWARDED],
        )
    )
    client.chmod(0o755)
    # Its libraries have one thread each (tests/__init__.py), as Snakemake sets it for the jobs of these workflows.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    read, write = os.pipe()
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), str(address)],
        stdin=read,
        stdout=subprocess.PIPE,
        env=environment,
        cwd=folder,
    )
    os.close(read)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    # The server ends when its standard input does.
    atexit.register(os.close, write)
    return client


def serve(address: str) -> None:
    """Fork for each request until the standard input ends."""
    # Its own folder, as that of any script, is no place to import from.
    del sys.path[0]
    for name in LIBRARIES:
        importlib.import_module(name)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(address)
    listening.listen(64)
    # Whoever watches over a process is not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if listening not in ready:
            return
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            watch(connection)
        connection.close()


def watch(connection: socket.socket) -> NoReturn:
    """Run what was asked for; pass on signals; kill it when the client is gone; tell its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    text, streams, _, _ = socket.recv_fds(connection, LONGEST_REQUEST, 3)
    process = os.fork()
    if process == 0:
        connection.close()
        run(json.loads(text), streams)
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(process)
    while True:
        ready, _, _ = select.select([connection, ended], [], [])
        if ended in ready:
            break
        sent = connection.recv(1)
        os.kill(process, sent[0] if sent else signal.SIGKILL)
        if not sent:
            os._exit(0)
    _, status = os.waitpid(process, 0)
    with contextlib.suppress(OSError):
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def run(request: dict[str, object], streams: list[int]) -> NoReturn:
    """The process itself: `python -m <module> <arguments>` in the folder and environment of the request."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    folder, environment, arguments, nice = (request[name] for name in ("folder", "environment", "arguments", "nice"))
    assert isinstance(folder, str)
    assert isinstance(environment, dict)
    assert isinstance(arguments, list)
    assert isinstance(nice, int)
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    importlib.invalidate_caches()
    module, *rest = arguments
    sys.argv = [module, *rest]
    status: object = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        traceback.print_exc()
        status = 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter does when it ends: waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


if __name__ == "__main__":
    serve(sys.argv[1])
