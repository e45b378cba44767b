"""Two users build one study in one store under kills, stops and damage. Their mount refuses `RENAME_EXCHANGE`."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from robustfeatures.errors import UserError
from robustfeatures.files import list_files
from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.verify import verify
from tests.conftest import Workspace, workspace_in
from tests.faults.conftest import Bindfs
from tests.faults.test_damage import flip_a_bit, remove, truncate
from tests.faults.test_leases import can_exchange
from tests.faults.test_sigkill import contents, jobs_below, tables

KILLS, STOPS, DAMAGES = 50, 10, 20
LEASE = 3.0
# For what is left to make after the last strike: minutes on a machine that does nothing else.
LIMIT_SECONDS = 2 * 3600
# Between two strikes pass up to so many seconds, or the time until a payload is published. So there is work to destroy,
# however slow this machine is.
SECONDS = 6.0
PATIENCE_SECONDS = 300.0
GROUP = 54321
USERS = (54322, 54323)
# Snakemake as another user, which needs a home of its own. Python may lie where only root can read, so that the process
# keeps the right to read everything, and nothing else of root's.
AS_USER = """
import ctypes, os, sys
user, group = int(sys.argv[1]), int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(8, 1, 0, 0, 0)
os.umask(0o002); os.setgroups([group]); os.setgid(group); os.setresuid(user, user, user)
CAP_DAC_READ_SEARCH = 1 << 2
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
data = (ctypes.c_uint32 * 6)(CAP_DAC_READ_SEARCH, CAP_DAC_READ_SEARCH, CAP_DAC_READ_SEARCH, 0, 0, 0)
assert libc.capset(header, data) == 0, os.strerror(ctypes.get_errno())
assert libc.prctl(47, 2, 2, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
"""


@dataclass
class User:
    number: int
    workspace: Workspace
    process: subprocess.Popen[bytes] | None = None
    completed: int = 0

    def start(self) -> None:
        home = self.workspace.folder.parent
        environment = {
            **os.environ,
            "HOME": str(home),
            "LOGNAME": f"user{self.number}",
            "XDG_CACHE_HOME": str(home / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "ROBUSTFEATURES_CHECKPOINT_SECONDS": "0",
            "ROBUSTFEATURES_LEASE_SECONDS": str(LEASE),
        }
        shutil.rmtree(self.workspace.folder / ".snakemake" / "locks", ignore_errors=True)
        shutil.rmtree(self.workspace.folder / ".snakemake" / "incomplete", ignore_errors=True)
        command = [sys.executable, "-c", AS_USER, str(self.number), str(GROUP), "-m", "snakemake", "--cores", "1"]
        with (self.workspace.folder / "snakemake.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--keep-going", "--retries", "2"],
                cwd=self.workspace.folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self) -> None:
        """Kill the workflow and its jobs at once."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def jobs(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            if self.process is not None and self.is_running:
                return jobs_below(psutil.Process(self.process.pid))
        return []


@pytest.fixture
def users(open_folder: Path, bindfs: Bindfs) -> Iterator[list[User]]:
    """Two users with a checkout each, and one store for their group."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as two users")
    folder, mount = open_folder / "folder", open_folder / "store"
    folder.mkdir()
    bindfs(mount, folder, "--multithreaded")
    assert not can_exchange(mount)
    shutil.chown(mount, group=GROUP)
    mount.chmod(0o2775)
    found = []
    for number in USERS:
        home = open_folder / str(number)
        home.mkdir()
        workspace = workspace_in(home / "work")
        workspace.edit("config.yaml", "study: digits", "study: smoke")
        workspace.edit("config.yaml", "store: results/store", f"store: {mount}")
        workspace.store = mount
        subprocess.run(["chown", "-R", f"{number}:{GROUP}", str(home)], check=True)
        found.append(User(number, workspace))
    yield found
    for user in found:
        user.end()


def damage(store: Store, chance: random.Random) -> bool:
    keys = store.payload_keys()
    files = list_files(store.payload(chance.choice(keys))) if keys else []
    if not files:
        return False
    with contextlib.suppress(OSError):
        chance.choice((flip_a_bit, truncate, remove))(chance.choice(files))
        return True
    return False


def payloads(store: Store) -> set[tuple[str, int]]:
    """Each payload with the time of its manifest, so that one made again counts too."""
    found = set()
    for path in store.root.glob("[!.]*/manifest.json"):
        with contextlib.suppress(FileNotFoundError):
            found.add((path.parent.name, path.stat().st_mtime_ns))
    return found


def wait_for_a_payload(store: Store, users: list[User]) -> bool:
    """Wait until a payload is published, or a workflow has ended; whether one was published."""
    before, until = payloads(store), time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until and all(user.is_running for user in users):
        time.sleep(0.5)
        if payloads(store) - before:
            return True
    return False


def strike(users: list[User], chance: random.Random, counts: Counter[str]) -> None:
    """Kill a job or the whole workflow, or stop a job until others consider it dead."""
    at_work = [(user, jobs) for user in users if (jobs := user.jobs())]
    if not at_work:
        return
    user, jobs = chance.choice(at_work)
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        if counts["stops"] < STOPS and not chance.randrange(4):
            victim = chance.choice(jobs)
            victim.suspend()
            time.sleep(LEASE + 2.0)
            victim.resume()
            counts["stops"] += 1
        elif chance.randrange(3):
            chance.choice(jobs).kill()
            counts["kills"] += 1
        else:
            user.end()
            counts["kills"] += 1


@pytest.mark.chaos
def test_chaos(users: list[User], smoke: Workspace) -> None:
    chance = random.Random(0)  # noqa: S311
    counts: Counter[str] = Counter()
    store = Store(users[0].workspace.store)
    while counts["kills"] < KILLS or counts["stops"] < STOPS or counts["damages"] < DAMAGES:
        for user in users:
            if not user.is_running:
                revive(user, store)
        if chance.randrange(2):
            time.sleep(chance.uniform(0.5, SECONDS))
        elif wait_for_a_payload(store, users) and counts["damages"] < DAMAGES:
            counts["damages"] += damage(store, chance)
        if counts["kills"] < KILLS or counts["stops"] < STOPS:
            strike(users, chance, counts)
    for user in users:
        user.end()
    # Afterwards the study is complete once what was damaged is moved aside.
    list(verify(store, repair=True))
    for user in users:
        finish(user)
        assert contents(user.workspace) == contents(smoke)
        assert tables(user.workspace) == tables(smoke)
    assert list(verify(store)) == []
    print(f"{dict(counts)}; completed {[user.completed + 1 for user in users]} times in between; equal to the bit")


def revive(user: User, store: Store) -> None:
    """Start the workflow of a user, with work to do if it was complete."""
    if user.process is not None and user.process.returncode == 0:
        user.completed += 1
        forget(user, store)
    elif user.process is not None and user.process.returncode > 0:
        # Jobs refuse damaged payloads until somebody moves them aside.
        with contextlib.suppress(UserError, OSError):
            list(verify(store, repair=True))
    user.start()


def finish(user: User) -> None:
    user.start()
    assert user.process is not None
    code = user.process.wait(LIMIT_SECONDS)
    assert code == 0, (user.workspace.folder / "snakemake.log").read_text()[-6000:]


def forget(user: User, store: Store) -> None:
    """Remove this user's references and some payloads, so that there is work again."""
    shutil.rmtree(user.workspace.folder / "results", ignore_errors=True)
    for key in store.payload_keys()[::2]:
        with contextlib.suppress(OSError):
            store.remove(key)
