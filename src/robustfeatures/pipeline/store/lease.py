"""Leases: the right of one job to make a payload or a block. It ends when its holder shows no sign of life."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import LeaseCompromise, LeaseSettingsMismatch, SoftFileLease, Timeout

from robustfeatures.errors import UserError
from robustfeatures.files import name_user

log = logging.getLogger(__name__)

# After this time without a sign of life, jobs on other machines consider a job dead. On most local disks, jobs on the
# same machine notice its end at once. All jobs of a store must agree; tests shorten it.
LEASE_SECONDS = float(os.environ.get("ROBUSTFEATURES_LEASE_SECONDS", "120"))
# Seconds between two looks at a lease that another job holds.
POLL_SECONDS = 5.0
# After so long a job that waits for another gives up, and with it its processors and its GPU.
WAIT_SECONDS = float(os.environ.get("ROBUSTFEATURES_WAIT_SECONDS", "600"))


class HeldError(UserError):
    """Another job holds the lease."""


@dataclass(frozen=True)
class Lease:
    """A lease that this job holds on a payload, or on a block of it, in the folder `scratch` of unfinished work."""

    key: str
    scratch: Path
    block: str
    lock: SoftFileLease
    token: str

    @property
    def fresh(self) -> Path:
        """The place where this holder makes the payload or block. Another holder of the lease has another one."""
        return self.scratch / f"{'block' if self.block else 'payload'}-{self.token}"

    def check(self) -> None:
        """Check that the lease is still this job's.

        Raises:
            UserError: another job considered this one dead, for example because it was stopped, and took the lease.
        """
        owner = self.lock.owner
        if owner is None and _Marker.read(Path(self.lock.lock_file)) is not None:
            raise UserError(f"{self.lock.lock_file}: cannot be read as the lock of this job; run again")
        if owner is None or owner.token != self.token:
            raise UserError(
                f"{self.lock.lock_file}: this job lost the lease to another one, which makes the payload; run again"
            )


@contextmanager
def hold(scratch: Path, block: str, patience: float) -> Iterator[Lease]:
    """Hold the lease of a payload or of a block. Another holder is waited for, but for `patience` seconds at most.

    Raises:
        HeldError: another job still holds it.
        UserError: a job with other settings holds it.
    """
    lock_file = scratch.with_suffix(f".{block}.lock" if block else ".lock")
    lock = SoftFileLease(lock_file, lease_duration=LEASE_SECONDS, on_compromise=_give_up)
    _acquire(lock, lock_file, patience)
    try:
        assert lock.token is not None
        yield Lease(scratch.name, scratch, block, lock, lock.token)
    finally:
        lock.release()


def in_turn(names: Iterable[str], make: Callable[[str, float], None], patience: float | None = None) -> None:
    """Call `make(name, patience)` for each name. What other jobs make comes last.

    `make` is to raise HeldError if another job holds the lease for longer than `patience` seconds. Only when nothing
    else is left to do is another job waited for, by default `WAIT_SECONDS`.

    Raises:
        HeldError: another job still makes something after this time.
    """
    left = list(names)
    while left:
        held = []
        for name in left:
            try:
                make(name, 0.0)
            except HeldError:
                held.append(name)
        if len(held) == len(left):
            make(held.pop(0), WAIT_SECONDS if patience is None else patience)
        left = held


def is_alive(lock_file: Path, within: float | None = None) -> bool:
    """Whether the holder of a lease has shown a sign of life within so many seconds, by default the time of a lease.

    A lock from the future is stale: its job died before the clock was set back.
    """
    # A job may release the lock at this moment.
    with suppress(FileNotFoundError):
        return abs(time.time() - lock_file.stat().st_mtime) < (LEASE_SECONDS if within is None else within)
    return False


@dataclass(frozen=True)
class _Marker:
    """A lock file as it was seen. Each sign of life of its holder changes the time."""

    content: bytes
    mtime_ns: int

    @classmethod
    def read(cls, path: Path) -> _Marker | None:
        """The lock file at `path`; None if there is none."""
        try:
            return cls(path.read_bytes(), path.stat().st_mtime_ns)
        except FileNotFoundError:
            return None


def _acquire(lock: SoftFileLease, lock_file: Path, patience: float) -> None:
    began = changed = time.monotonic()
    seen: _Marker | None = None
    while not _try(lock):
        now, marker = time.monotonic(), _Marker.read(lock_file)
        if marker is None:
            continue
        if marker != seen:
            if seen is None and patience:
                log.info("waits for %s", _describe(lock, lock_file))
            seen, changed = marker, now
        # Here filelock could not take over the lock of a dead job: the file system exchanges no names.
        elif now - changed >= LEASE_SECONDS:
            log.warning("takes over from %s", _describe(lock, lock_file))
            _move_aside(lock_file, marker)
            continue
        left = began + patience - now
        if left <= 0:
            raise HeldError(f"{_describe(lock, lock_file)}; run again later")
        time.sleep(min(POLL_SECONDS, LEASE_SECONDS / 10, left))


def _try(lock: SoftFileLease) -> bool:
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    except LeaseSettingsMismatch as error:
        raise UserError(f"{lock.lock_file}: held by a job of another version or setting ({error})") from error
    return True


def _describe(lock: SoftFileLease, lock_file: Path) -> str:
    owner = lock.owner
    try:
        facts = lock_file.stat()
    except OSError:
        return f"{lock_file}: held by another job"
    life = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(facts.st_mtime))
    who = "a job" if owner is None else f"process {owner.pid} on {owner.hostname}"
    return f"{lock_file}: held by {who} of {name_user(facts.st_uid)}, whose last sign of life was at {life}"


def _move_aside(lock_file: Path, judged: _Marker) -> None:
    """Remove the lock file of a dead job. If it was another one after all, it is put back.

    Between the two renames a third job may take the lease. Then two jobs hold it until one of them notices, which it
    does at its next sign of life, and before it publishes anything.
    """
    aside = lock_file.with_name(f"{lock_file.name}.stale.{secrets.token_hex(8)}")
    if _Marker.read(lock_file) != judged:
        return
    with suppress(FileNotFoundError):
        lock_file.rename(aside)
        if _Marker.read(aside) != judged:
            _put_back(aside, lock_file)
        aside.unlink(missing_ok=True)


def _put_back(aside: Path, lock_file: Path) -> None:
    try:
        # Unlike a rename, a link never replaces the lock of a third job.
        os.link(aside, lock_file)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        if not os.path.lexists(lock_file):
            aside.rename(lock_file)


def _give_up(loss: LeaseCompromise) -> None:
    """End this process at once. Another one considered it dead and now makes the payload."""
    print(
        f"robustfeatures: {loss.lock_file}: the lease was lost ({loss.reason}); run again", file=sys.stderr, flush=True
    )
    os._exit(1)
