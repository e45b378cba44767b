"""A file system of its own for a test, and a process with fewer rights."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Mount = Callable[..., None]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """`mount(place, *arguments)` mounts at a folder until the test ends; the test is skipped where it may not."""
    places: list[Path] = []

    def mounted(place: Path, *arguments: str) -> None:
        done = subprocess.run(["mount", *arguments, str(place)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
        if place not in places:
            places.append(place)

    yield mounted
    for place in places:
        subprocess.run(["umount", str(place)], check=False)


def as_nobody(call: str) -> str:
    """Code that runs `call` after the process has given up the rights of root.

    What is imported before needs no rights any more. Where the tests are not run by root there is nothing to give up.
    """
    give_up = "os.setgroups([]); os.setgid(65534); os.setuid(65534)" if os.geteuid() == 0 else "pass"
    return (
        "import os, sys, contextlib\nfrom robustfeatures import cli\n"
        "from robustfeatures.tools import gc, show, status, verify, why\n"
        # The command line imports some of itself when it is first used.
        "with contextlib.suppress(Exception): cli.app(['verify', '--store', '/nowhere'], standalone_mode=False)\n"
        f"{give_up}\n{call}"
    )
