"""Move payloads between a store and a remote: in parallel, and from where a killed run ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from robustfeatures.errors import StoppedError, UserError
from robustfeatures.files import hash_file, link_or_copy, write_atomically
from robustfeatures.pipeline.store.acceptances import FOLDER, list_acceptances, read_acceptance
from robustfeatures.pipeline.store.content import Hashes, find_inode
from robustfeatures.pipeline.store.lease import HeldError
from robustfeatures.pipeline.store.remote import DamagedError, Remote
from robustfeatures.pipeline.store.sealed import MANIFEST
from robustfeatures.pipeline.store.store import Store, discard

T = TypeVar("T")

PAYLOADS_AT_ONCE = 8
FILES_AT_ONCE = 16
# Complete files of a payload that is being fetched, by their SHA-256, in its folder of unfinished work.
FETCHED = "fetched"


@dataclass
class Outcome:
    """What became of payloads: the keys that were moved, and those that were there before; lines on all others.

    `held` has a line for each key that another job makes or fetches.
    """

    moved: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)


def push(store: Store, remote: Remote, keys: Sequence[str], *, bar: bool = True) -> Outcome:
    """Copy payloads to a remote, the given order first to last. What is there with the same content stays.

    A payload that is damaged here, or that the remote has with other content, is refused with a line.

    Raises:
        UserError: the remote cannot be written.
    """
    remote.create()
    outcome, listed = Outcome(), remote.keys()
    own = {}
    for key in keys:
        manifest = store.manifest(key)
        if manifest is None or manifest["key"] != key:
            outcome.refused.append(f"{store.payload(key)}: missing or damaged; run `robustfeatures verify`")
        else:
            own[key] = manifest
    with _transfer("push", sum(map(_size, own.values())), bar=bar) as transfer:
        transfer.each(own, lambda key: _push(store, remote, own[key], key in listed, transfer), outcome)
    done = {*outcome.moved, *outcome.there}
    for path in list_acceptances(store.root):
        acceptance = read_acceptance(path)
        if acceptance is not None and any(entry["kept"] in done for entry in acceptance["stands"].values()):
            remote.write(f"{FOLDER}/{path.name}", path.read_bytes())
    return outcome


def pull(
    store: Store,
    remote: Remote,
    manifests: Mapping[str, dict[str, Any]],
    *,
    bar: bool = True,
    patience: float | None = 0.0,
) -> Outcome:
    """Fetch the payloads with these manifests of a remote, and publish each like one made here.

    A payload with a damaged object is refused with a line. For one that another job holds, `patience` is the time to
    wait in seconds, `None` that of a job.

    Raises:
        UserError: the remote cannot be read.
        OSError: the store cannot be written.
    """
    outcome = Outcome()
    with _transfer("pull", sum(map(_size, manifests.values())), bar=bar) as transfer:
        transfer.each(manifests, lambda key: _pull(store, remote, manifests[key], transfer, patience), outcome)
    return outcome


def pull_acceptances(store: Store, remote: Remote) -> None:
    """Fetch all acceptances of a remote that the store does not have."""
    known = {path.name for path in list_acceptances(store.root)}
    for name, content in remote.acceptances(known):
        write_atomically(store.root / FOLDER / name, content)


def read_manifests(remote: Remote, keys: Iterable[str]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The manifests of the complete payloads among `keys`, by key, and a line on each that is damaged."""
    found: dict[str, dict[str, Any]] = {}
    damaged: list[str] = []

    def read(key: str) -> tuple[str, dict[str, Any] | str | None]:
        try:
            return key, remote.manifest(key)
        except DamagedError as error:
            return key, str(error)

    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        for key, manifest in pool.map(read, keys):
            if isinstance(manifest, str):
                damaged.append(manifest)
            elif manifest is not None:
                found[key] = manifest
    return found, damaged


def _size(manifest: Mapping[str, Any]) -> int:
    return sum(facts["size"] for facts in manifest["files"].values())


@dataclass(frozen=True)
class _Transfer:
    """The threads of one push or pull, and its progress bar. Payloads wait for files, and files for nothing."""

    payloads: ThreadPoolExecutor
    files: ThreadPoolExecutor
    bar: tqdm[Any]
    lock: threading.Lock
    stopped: threading.Event

    def count(self, count: int) -> None:
        """Count bytes that were moved.

        Raises:
            StoppedError: another thread has failed.
        """
        if self.stopped.is_set():
            raise StoppedError("stopped, because another file failed")
        with self.lock:
            self.bar.update(count)

    def each(self, keys: Iterable[str], move: Callable[[str], bool], outcome: Outcome) -> None:
        """Call `move` for each key and sort the keys by what it says: moved, or there before."""
        running = {self.payloads.submit(move, key): key for key in keys}
        for future in as_completed(running):
            key = running[future]
            try:
                (outcome.moved if future.result() else outcome.there).append(key)
            except HeldError as error:
                outcome.held[key] = str(error)
            except RefusedError as error:
                outcome.refused.append(str(error))

    def all_files(self, move: Callable[[T], None], items: Iterable[T]) -> None:
        """Call `move` for each file, in parallel; raise the first error after all have ended."""
        running: list[Future[None]] = [self.files.submit(move, item) for item in items]
        errors = [error for future in running if (error := future.exception()) is not None]
        if errors:
            raise min(errors, key=lambda error: isinstance(error, StoppedError))


class RefusedError(UserError):
    """One payload cannot be moved; the others can."""


@contextmanager
def _transfer(what: str, size: int, *, bar: bool) -> Iterator[_Transfer]:
    # With `None` there is a bar on a terminal alone.
    shown = tqdm(total=size, desc=what, unit="B", unit_scale=True, unit_divisor=1024, disable=None if bar else True)
    payloads, files = ThreadPoolExecutor(PAYLOADS_AT_ONCE), ThreadPoolExecutor(FILES_AT_ONCE)
    transfer = _Transfer(payloads, files, shown, threading.Lock(), threading.Event())
    try:
        yield transfer
    finally:
        # After an error, files that are on their way stop, and the leases are given back.
        transfer.stopped.set()
        payloads.shutdown(cancel_futures=True)
        files.shutdown(cancel_futures=True)
        shown.close()


def _push(store: Store, remote: Remote, manifest: Mapping[str, Any], is_listed: bool, transfer: _Transfer) -> bool:
    key = manifest["key"]
    there = remote.sizes(key) if is_listed else {}
    theirs = _their_manifest(remote, key) if MANIFEST in there else None
    wanted = {facts["sha256"]: (name, facts["size"]) for name, facts in manifest["files"].items()}
    if theirs is not None:
        _compare(remote, theirs, manifest)
        if all(there.get(facts["sha256"]) == facts["size"] for facts in theirs["files"].values()):
            transfer.count(_size(manifest))
            return False
    lacking = {sha256: entry for sha256, entry in wanted.items() if there.get(sha256) != entry[1]}

    def put(sha256: str) -> None:
        path = store.payload(key) / wanted[sha256][0]
        if hash_file(path) != sha256:
            raise RefusedError(f"{path}: damaged; run `robustfeatures verify --repair`")
        remote.put(path, f"{key}/{sha256}", transfer.count)

    transfer.all_files(put, lacking)
    transfer.count(_size(manifest) - sum(size for _, size in lacking.values()))
    theirs = _their_manifest(remote, key)
    if theirs is not None:
        # Another person was faster. With the same content, either manifest is right and has its own objects.
        _compare(remote, theirs, manifest)
    remote.write(f"{key}/{MANIFEST}", (store.payload(key) / MANIFEST).read_bytes())
    return True


def _their_manifest(remote: Remote, key: str) -> dict[str, Any] | None:
    try:
        return remote.manifest(key)
    except DamagedError:
        # It is written again.
        return None


def _compare(remote: Remote, theirs: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    if theirs["content"] != own["content"]:
        raise RefusedError(
            f"{remote.address}/{own['key']}: has other content than here (made on {theirs['built'].get('host')}, here "
            f"on {own['built'].get('host')}) and is left as it is"
        )


def _pull(
    store: Store, remote: Remote, manifest: Mapping[str, Any], transfer: _Transfer, patience: float | None
) -> bool:
    key = manifest["key"]
    # A killed pull may have published the payload, and have left what it had fetched.
    if store.manifest(key) is not None and not store.is_unfinished(key):
        transfer.count(_size(manifest))
        return False
    with store.lease(key, patience=patience) as lease:
        came = store.manifest(key) is None
        if came:
            _fetch(remote, manifest, lease.scratch / FETCHED, transfer)
            lease.fresh.mkdir()
            hashes = _arrange(manifest, lease.scratch / FETCHED, lease.fresh)
            # The store counts the files again, and writes the same manifest.
            facts = {name: value for name, value in manifest.items() if name not in ("key", "files", "seal")}
            store.publish(lease, facts, hashes)
        else:
            transfer.count(_size(manifest))
        discard(lease.scratch)
    return came


def _fetch(remote: Remote, manifest: Mapping[str, Any], folder: Path, transfer: _Transfer) -> None:
    """Fetch the files of a payload that an earlier run has not fetched, each under its SHA-256."""
    folder.mkdir(exist_ok=True)
    for half in folder.glob(".*"):
        half.unlink()
    sizes = {facts["sha256"]: facts["size"] for facts in manifest["files"].values()}

    def get(sha256: str) -> None:
        path = folder / sha256
        if path.exists() and hash_file(path) == sha256:
            transfer.count(sizes[sha256])
        else:
            remote.get(f"{manifest['key']}/{sha256}", sha256, path, transfer.count)

    try:
        transfer.all_files(get, sizes)
    except DamagedError as error:
        raise RefusedError(str(error)) from error


def _arrange(manifest: Mapping[str, Any], fetched: Path, payload: Path) -> Hashes:
    """Give the fetched files the names that they have in the payload; returns the hashes of those that were linked.

    A link has the inode of the file that was hashed when it was fetched. A copy has its own, and is hashed again.
    """
    hashes: Hashes = {}
    for name, facts in manifest["files"].items():
        place = payload / name
        place.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(fetched / facts["sha256"], place)
        hashes[find_inode(fetched / facts["sha256"])] = facts["sha256"]
    return hashes
