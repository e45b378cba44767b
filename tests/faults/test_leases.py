"""Leases of dead and of stopped jobs, also on file systems that exchange no names: each payload is made whole, once."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robustfeatures.errors import UserError
from robustfeatures.pipeline.store import lease as leases
from robustfeatures.pipeline.store.lease import HeldError, Lease
from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.gc import leftovers
from robustfeatures.tools.verify import verify
from tests.faults.conftest import Bindfs
from tests.faults.test_machines import leave_lock, publish

RENAME_EXCHANGE = 2
# Of the jobs of these tests.
SECONDS = 2.0


def can_exchange(folder: Path) -> bool:
    names = [str(folder / name).encode() for name in ("one", "other")]
    for name in names:
        Path(name.decode()).touch()
    done = ctypes.CDLL(None).renameat2(-100, names[0], -100, names[1], RENAME_EXCHANGE)
    for name in names:
        Path(name.decode()).unlink()
    return bool(done == 0)


@pytest.fixture(params=["mounted", "injected"])
def without_exchange(
    request: pytest.FixtureRequest, tmp_path: Path, bindfs: Bindfs, monkeypatch: pytest.MonkeyPatch
) -> Store:
    """A store where names cannot be exchanged: on a mount that refuses it, or as if the system's call refused it."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", SECONDS)
    folder = tmp_path / "folder"
    folder.mkdir()
    if request.param == "mounted":
        bindfs(tmp_path / "mount", folder)
        folder = tmp_path / "mount"
        assert not can_exchange(folder)
    else:
        monkeypatch.setattr("filelock._soft.exchange_names", lambda *_: False)
        monkeypatch.setattr("filelock._util.exchange_names", lambda *_: False)
    return Store(folder / "store")


def test_a_dead_job_is_superseded(without_exchange: Store, caplog: pytest.LogCaptureFixture) -> None:
    store = without_exchange
    lock = leave_lock(store, "0123456789abcdef", SECONDS, "a-machine-that-died")
    began = time.monotonic()
    with caplog.at_level(logging.INFO):
        publish(store, "0123456789abcdef")
    assert SECONDS <= time.monotonic() - began < 10 * SECONDS
    assert store.manifest("0123456789abcdef") is not None
    assert not lock.exists()
    assert list(lock.parent.glob("*.lock*")) == []
    waits, takes = (message for message in caplog.messages if "a-machine-that-died" in message)
    assert waits.startswith(f"waits for {lock}: held by process ")
    assert takes.startswith(f"takes over from {lock}: held by process ")
    assert "whose last sign of life was at 20" in takes


def test_a_living_job_is_not_superseded(without_exchange: Store) -> None:
    store = without_exchange
    code = (
        "import sys, time; from pathlib import Path; from robustfeatures.pipeline.store.store import Store\n"
        "with Store(Path(sys.argv[1])).lease('0123456789abcdef') as held:\n"
        "    print('held', flush=True); time.sleep(float(sys.argv[2])); (held.scratch / 'done').touch()"
    )
    environment = {**os.environ, "ROBUSTFEATURES_LEASE_SECONDS": str(SECONDS)}
    command = [sys.executable, "-c", code, str(store.root), str(3 * SECONDS)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with (
        pytest.raises(HeldError, match=rf"held by process {holder.pid} on .*; run again later"),
        store.lease("0123456789abcdef", patience=SECONDS / 2),
    ):
        pass
    with store.lease("0123456789abcdef") as lease:
        assert (lease.scratch / "done").exists()
    assert holder.wait() == 0


MAKE = """
import sys
from pathlib import Path
from robustfeatures.pipeline.store.store import Store, discard

store = Store(Path(sys.argv[1]))
with store.lease("0123456789abcdef") as lease:
    if store.manifest("0123456789abcdef") is None:
        with Path(sys.argv[2]).open("a") as file:
            file.write("x")
        lease.fresh.mkdir()
        (lease.fresh / "rows.csv").write_text("content")
        store.publish(lease, {"content": "c", "built": {}})
    discard(lease.scratch)
"""


def test_of_many_that_wait_for_a_dead_job_one_makes(tmp_path: Path, bindfs: Bindfs) -> None:
    (tmp_path / "folder").mkdir()
    bindfs(tmp_path / "mount", tmp_path / "folder")
    store = Store(tmp_path / "mount" / "store")
    leave_lock(store, "0123456789abcdef", SECONDS, "a-machine-that-died")
    environment = {**os.environ, "ROBUSTFEATURES_LEASE_SECONDS": str(SECONDS)}
    command = [sys.executable, "-c", MAKE, str(store.root), str(tmp_path / "counter")]
    makers = [subprocess.Popen(command, env=environment) for _ in range(4)]
    assert [maker.wait() for maker in makers] == [0] * 4
    assert (tmp_path / "counter").read_text() == "x"
    assert list(verify(store)) == []


@pytest.mark.parametrize("links", [True, False])
def test_the_lock_of_another_job_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    """A third job takes the lease over after the look and before the rename."""
    lock = tmp_path / "k.lock"
    lock.write_text("dead")
    judged = leases._Marker.read(lock)
    assert judged is not None
    lock.write_text("alive")
    inode = lock.stat().st_ino
    read = leases._Marker.read
    looks = iter([judged])
    monkeypatch.setattr(leases._Marker, "read", lambda path: next(looks, None) or read(path))
    if not links:

        def refuse(*_: object) -> None:
            raise OSError(95, "Operation not supported")

        monkeypatch.setattr(os, "link", refuse)
    leases._move_aside(lock, judged)
    assert (lock.read_text(), lock.stat().st_ino) == ("alive", inode)
    assert list(tmp_path.iterdir()) == [lock]


def test_gc_removes_the_locks_of_dead_jobs(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    old, young = (leave_lock(store, key, SECONDS, "a-machine-that-died") for key in ("old", "young"))
    os.utime(old, (time.time() - 2 * 3600,) * 2)
    assert old in leftovers(store, unfinished=False)
    assert young not in leftovers(store, unfinished=True)


def test_a_job_that_was_stopped_publishes_nothing(tmp_path: Path) -> None:
    """It wakes in the middle of its work, after another job has made the payload."""
    store = Store(tmp_path / "store")
    code = (
        "import sys; from pathlib import Path; from robustfeatures.pipeline.store.store import Store\n"
        "store = Store(Path(sys.argv[1]))\n"
        "with store.lease('0123456789abcdef') as lease:\n"
        "    lease.fresh.mkdir(); (lease.fresh / 'labels').write_text('first')\n"
        "    print('half', flush=True); sys.stdin.readline()\n"
        "    (lease.fresh / 'images').write_text('first')\n"
        "    store.publish(lease, {'content': 'first', 'built': {}})"
    )
    environment = {**os.environ, "ROBUSTFEATURES_LEASE_SECONDS": str(SECONDS)}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code, str(store.root)]
    stopped = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)
    assert stopped.stdout is not None
    assert stopped.stdout.readline() == "half\n"
    stopped.send_signal(signal.SIGSTOP)
    done = subprocess.run(
        [*command[:2], code.replace("first", "second"), command[3]],
        input="\n",
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    stopped.send_signal(signal.SIGCONT)
    _, errors = stopped.communicate("\n")
    assert stopped.returncode != 0
    assert "lost the lease" in errors or "the lease was lost" in errors
    manifest = store.manifest("0123456789abcdef")
    assert manifest is not None
    assert manifest["content"] == "second"
    assert set(manifest["files"]) == {"images", "labels"}
    assert list(verify(store)) == []


def test_the_first_publisher_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even if both jobs believe that they hold the lease."""
    store = Store(tmp_path / "store")
    monkeypatch.setattr(Lease, "check", lambda lease: None)

    def publish_again(text: str) -> dict[str, object]:
        with store.lease("0123456789abcdef") as lease:
            lease.fresh.mkdir()
            (lease.fresh / "rows.csv").write_text(text)
            return store.publish(lease, {"content": text, "built": {}})

    first = publish_again("first")
    assert publish_again("second") == first
    assert (store.payload("0123456789abcdef") / "rows.csv").read_text() == "first"
    assert list(verify(store)) == []
    assert not list(store.root.glob(".damaged-*"))


def test_a_lost_lease_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with store.lease("0123456789abcdef") as lease:
        lease.check()
        lock = Path(lease.lock.lock_file)
        lock.write_text(lock.read_text().replace(lease.token, "0" * 32))
        with pytest.raises(UserError, match="this job lost the lease to another one"):
            lease.check()
        lock.unlink()
        with pytest.raises(UserError, match="this job lost the lease"):
            lease.check()


def test_a_name_that_is_cached_as_absent(tmp_path: Path, bindfs: Bindfs) -> None:
    """Another machine publishes a payload shortly after this one looked for it."""
    (tmp_path / "folder").mkdir()
    bindfs(tmp_path / "mount", tmp_path / "folder", "-o", "negative_timeout=600,entry_timeout=600,attr_timeout=600")
    here, there = Store(tmp_path / "mount" / "store"), Store(tmp_path / "folder" / "store")
    here.root.mkdir()
    assert here.manifest("0123456789abcdef") is None
    publish(there, "0123456789abcdef")
    assert here.manifest("0123456789abcdef") is None
    with here.lease("0123456789abcdef"):
        assert here.manifest("0123456789abcdef") is not None
    with here.lease("other"):
        assert here.payload_keys() == ["0123456789abcdef"]
