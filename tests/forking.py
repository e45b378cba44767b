"""Snakemake in processes that are forked from one that has imported it: the import takes half of a short run.

The first call starts a server, which ends with the process of the tests. For each call it forks a child, which does
what `python -m snakemake` would do in that folder, with those variables. One thing differs: the seed of `hash` is the
server's. Of this package the server imports nothing.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Never

# Python and Snakemake read these while they start, so a change of them needs a new process.
READ_AT_START = ("PYTHON", "HOME", "XDG_", "LANG", "LC_", "LD_")
# Snakemake, and what it imports only while it runs.
IMPORTED = (
    "snakemake.cli",
    "snakemake.report.html_reporter",
    "smart_open",
    "requests",
    "jinja2",
    "pygments.lexers",
    "yte",
)
# The variables of the server.
AT_START = dict(os.environ)


def run_snakemake(folder: Path, arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What `python -m snakemake` with these arguments printed, and its exit code. Its priority is the caller's."""
    command = [sys.executable, "-m", "snakemake", *arguments]
    if _read_at_start(environment) != _read_at_start(AT_START):
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    with tempfile.TemporaryDirectory() as name, socket.socket(socket.AF_UNIX) as connection:
        printed = [str(Path(name) / stream) for stream in ("stdout", "stderr")]
        request = {
            "folder": str(folder),
            "arguments": arguments,
            "environment": environment,
            "printed": printed,
            "priority": os.getpriority(os.PRIO_PROCESS, 0),
        }
        _, address = _server()
        connection.connect(str(address))
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile().read()
        stdout, stderr = (Path(path).read_text() for path in printed)
    return subprocess.CompletedProcess(command, int(answer), stdout, stderr)


def _read_at_start(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


@cache
def _server() -> tuple[subprocess.Popen[bytes], Path]:
    """The server of this process and its address, once it listens."""
    address = Path(tempfile.mkdtemp()) / "address"
    process = subprocess.Popen([sys.executable, __file__, str(address)], stdin=subprocess.PIPE, env=AT_START)
    while not address.exists():
        assert process.poll() is None
        time.sleep(0.02)
    return process, address


def _serve(address: str) -> None:
    # Nothing is imported from this file's folder.
    del sys.path[0]
    for name in IMPORTED:
        # Another version of Snakemake may do without.
        with suppress(ModuleNotFoundError):
            import_module(name)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{address}.binding")
        listening.listen()
        Path(f"{address}.binding").rename(address)
        # Nobody waits for the children.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        # The process of the tests writes nothing; when it ends, its end of this pipe is closed.
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            connection, _ = listening.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listening.close()
                _answer(connection)
            connection.close()
    shutil.rmtree(Path(address).parent)


def _answer(connection: socket.socket) -> Never:
    request = json.loads(connection.makefile().read())
    number = os.fork()
    if number == 0:
        connection.close()
        _become_snakemake(**request)
    _, status = os.waitpid(number, 0)
    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become_snakemake(
    *, folder: str, arguments: list[str], environment: dict[str, str], printed: list[str], priority: int
) -> None:
    os.setpriority(os.PRIO_PROCESS, 0, priority)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # As for `python -m`.
    sys.path.insert(0, folder)
    sys.argv = ["snakemake", *arguments]
    sys.orig_argv = [sys.executable, "-m", *sys.argv]
    for number, path in enumerate((os.devnull, *printed)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    # It raises SystemExit, so this process ends like a new one: what is to be done at the exit is done.
    runpy.run_module("snakemake", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
