"""Ask a server of `tests/forking.py` for a process. A copy beside the server's address is the Python of jobs."""

from __future__ import annotations

import array
import json
import os
import socket
import sys
from typing import Any


def ask(address: str, files: tuple[int, int, int], **request: Any) -> int:
    """The exit code of a process that `_become` of `tests/forking.py` describes; negative if a signal has ended it.

    `files` are its standard input, output and error. Its priority is the caller's.
    """
    request["priority"] = os.getpriority(os.PRIO_PROCESS, 0)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
        connection.sendall(f"{json.dumps(request)}\n".encode())
        return int(connection.makefile().read())


def main() -> None:
    if sys.argv[1:3] != ["-m", "robustfeatures"]:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606
    code = ask(
        f"{__file__}-address",
        (0, 1, 2),
        module=sys.argv[2],
        arguments=sys.argv[3:],
        folder=os.getcwd(),  # noqa: PTH109
        environment=dict(os.environ),
    )
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
