"""A file system of its own for a test, and a process with fewer rights."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Mount = Callable[..., None]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """`mount(place, *arguments)` mounts at a folder until the test ends, and skips the test where it may not."""
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

    Imports before it need no rights later. A process that is not root's keeps its rights.
    """
    give_up = "os.setgroups([]); os.setgid(65534); os.setuid(65534)" if os.geteuid() == 0 else "pass"
    return (
        "import os, sys, contextlib\nfrom robustfeatures import cli\n"
        "from robustfeatures.tools import gc, show, status, verify, why\n"
        # The command line imports some of itself when it is first used.
        "with contextlib.suppress(Exception): cli.app(['verify', '--store', '/nowhere'], standalone_mode=False)\n"
        f"{give_up}\n{call}"
    )


Bindfs = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def bindfs() -> Iterator[Bindfs]:
    """`bindfs(place, folder, *options)` shows a folder at another place through FUSE; skips the test where it may not.

    Such a mount refuses `RENAME_EXCHANGE`, as NFS, Lustre, BeeGFS and SMB do. It dies with the process returned.
    """
    mounts: list[tuple[Path, subprocess.Popen[str]]] = []

    def mounted(place: Path, folder: Path, *options: str) -> subprocess.Popen[str]:
        if shutil.which("bindfs") is None:
            pytest.skip("bindfs is not installed; it mounts the file systems of this test")
        place.mkdir(exist_ok=True)
        command = ["bindfs", "-f", *options, str(folder), str(place)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while not place.is_mount():
            if process.poll() is not None:
                pytest.skip(f"bindfs cannot mount here: {process.communicate()[0].strip()}")
            time.sleep(0.05)
        mounts.append((place, process))
        return process

    yield mounted
    for place, process in mounts:
        subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)
        process.communicate()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A temporary folder that every user may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
