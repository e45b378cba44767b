"""Python's processes in tests, forked from servers that have imported the libraries: imports take half of a short run.

The first call starts a server, which ends with the process of the tests. For each call it forks a child, which does
what `python -m <module>` would do in that folder, with those variables. One thing differs: the seed of `hash` is the
server's. Of this package the servers import nothing.
"""

from __future__ import annotations

import gc
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
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Never

if __name__ == "__main__":
    # Nothing is imported from this file's folder.
    del sys.path[0]
else:
    from tests import forked

# Python and the libraries read these while they start, so a change of them needs a new process.
READ_AT_START = ("PYTHON", "HOME", "XDG_", "LANG", "LC_", "LD_")
# Each server's libraries, with what they import late. Another version may do without one of these modules.
SNAKEMAKE = (
    "snakemake.cli",
    "snakemake.report.html_reporter",
    "smart_open",
    "requests",
    "jinja2",
    "pygments.lexers",
    "yte",
)
JOBS = (
    "torch",
    "torch.nn.utils.parametrize",
    "numpy",
    "pandas",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
    "sklearn.datasets",
    "sklearn.model_selection",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_pdf",
    "fontTools.subset",
    "zarr",
    "safetensors.torch",
    "jinja2",
    "pydantic",
    "tqdm",
    "typer",
    "yaml",
)
# The variables of the servers.
AT_START = dict(os.environ)


def run_snakemake(folder: Path, arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What `python -m snakemake` with these arguments printed, and its exit code. Its priority is the caller's.

    Its jobs are forked too.
    """
    if _read_at_start(environment) != _read_at_start(AT_START):
        return _start("snakemake", folder, arguments, environment)
    # A dry run has no jobs, and shows the Python that they would run in.
    python = None if "-n" in arguments else str(_server(JOBS)[1])
    return _fork(SNAKEMAKE, "snakemake", folder, arguments, environment, python)


def run_module(
    module: str, folder: Path, arguments: list[str], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """The same for `python -m <module>` of this project. What it imports may lie below a PYTHONPATH of its own."""
    if _read_at_start(environment, but="PYTHONPATH") != _read_at_start(AT_START, but="PYTHONPATH"):
        return _start(module, folder, arguments, environment)
    return _fork(JOBS, module, folder, arguments, environment)


def _start(
    module: str, folder: Path, arguments: list[str], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _fork(
    libraries: tuple[str, ...],
    module: str,
    folder: Path,
    arguments: list[str],
    environment: dict[str, str],
    python: str | None = None,
) -> subprocess.CompletedProcess[str]:
    _, client = _server(libraries)
    null = Path(os.devnull)
    with null.open() as stdin, tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        code = forked.ask(
            f"{client}-address",
            (stdin.fileno(), stdout.fileno(), stderr.fileno()),
            module=module,
            arguments=arguments,
            folder=str(folder),
            environment=environment,
            python=python,
        )
        for file in (stdout, stderr):
            file.seek(0)
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.CompletedProcess(command, code, stdout.read(), stderr.read())


def _read_at_start(environment: dict[str, str], but: str | None = None) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START) and name != but}


@cache
def _server(libraries: tuple[str, ...]) -> tuple[subprocess.Popen[bytes], Path]:
    """The server of this process that has imported them, once it listens, and a Python whose jobs it forks."""
    client = Path(tempfile.mkdtemp()) / "python"
    # `-IS`: it starts in 20 ms.
    client.write_text(f"#!{sys.executable} -IS\n{Path(forked.__file__).read_text()}")
    client.chmod(0o700)
    command = [sys.executable, __file__, f"{client}-address", *libraries]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=AT_START)
    assert process.stdout is not None
    assert process.stdout.readline() == b"listening\n"
    return process, client


def _serve(address: str, libraries: list[str]) -> None:
    for name in libraries:
        with suppress(ModuleNotFoundError):
            import_module(name)
    # A collection in a child would look at all objects that are here, and so copy their pages.
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        print("listening", flush=True)
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
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    request = json.loads(connection.makefile().readline())
    number = os.fork()
    if number == 0:
        connection.close()
        for target, file in enumerate(files):
            os.dup2(file, target)
            os.close(file)
        _become(**request)
    for file in files:
        os.close(file)
    # Who asked may be killed before the end.
    ended = os.pidfd_open(number)
    if ended not in select.select([connection, ended], [], [])[0]:
        os.kill(number, signal.SIGTERM)
    _, status = os.waitpid(number, 0)
    with suppress(BrokenPipeError):
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(
    *,
    module: str,
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
    priority: int,
    python: str | None = None,
) -> Never:
    """Be `python -m <module> <arguments>`. The module reads `python` as the path of Python."""
    os.setpriority(os.PRIO_PROCESS, 0, priority)
    os.chdir(folder)
    before = os.environ.get("PYTHONPATH", "").split(":")
    os.environ.clear()
    os.environ.update(environment)
    # As Python does when it starts with `-m`.
    after = [str(Path(entry).absolute()) for entry in environment.get("PYTHONPATH", "").split(":") if entry]
    sys.path[: sum(map(bool, before))] = [folder, *after]
    sys.argv = [module, *arguments]
    sys.orig_argv = [sys.executable, "-m", *sys.argv]
    sys.executable = python or sys.executable
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    # Like a new process, this one does what is to be done at the exit.
    sys.exit()


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2:])
