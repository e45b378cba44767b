"""The store of payloads by key. Each payload is made once and becomes visible in one step."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from robustfeatures.errors import UserError
from robustfeatures.files import ABSENT, hash_file, list_files, name_user, read_json, sync_to_disk
from robustfeatures.pipeline.plan.canonical import KEY
from robustfeatures.pipeline.store import lease as leases
from robustfeatures.pipeline.store.acceptances import find_accepted, list_acceptances, read_acceptance
from robustfeatures.pipeline.store.content import Hashes, find_inode
from robustfeatures.pipeline.store.lease import Lease, hold, is_alive
from robustfeatures.pipeline.store.sealed import MANIFEST, read_sealed, write_sealed
from robustfeatures.pipeline.store.verified import check_file

# The files of images in a payload.
SHARDS = "*.zarr/*/images/c/*/*/*/*"
# A file that is not there, or a folder in its place.
DAMAGED = (*ABSENT, IsADirectoryError)
# What the note of a finished block says.
NOTE = {"sha256", "seconds", "device"}


@dataclass(frozen=True)
class Finding:
    """A line on a file that is not as it was published, or that cannot be read, so that nobody knows."""

    line: str
    is_damage: bool = True

    @classmethod
    def of(cls, path: Path, error: OSError) -> Finding:
        """What an error says of a file."""
        return cls(f"{path}: {error.strerror}", isinstance(error, DAMAGED))


@dataclass(frozen=True)
class Store:
    """A folder with payloads, `<key>/`, unfinished work, `.partial/<key>/`, and damaged payloads, `.damaged-<key>-1/`.

    `.accepted/` records which other keys stand for payloads.
    """

    root: Path

    def payload(self, key: str) -> Path:
        """The folder of a payload, which need not exist."""
        return self.root / key

    def scratch(self, key: str) -> Path:
        """The folder in which a payload is made. It stays if the job dies."""
        return self.root / ".partial" / key

    def block(self, key: str, name: str) -> Path:
        """The file of a block of an unfinished payload. The note beside it, `<name>.json`, marks it as complete."""
        return self.scratch(key) / "blocks" / name

    def has_block(self, key: str, name: str) -> bool:
        """Whether a block and its whole note are there. Some disks remove files that nobody has read for long."""
        try:
            note = read_json(self.block(key, f"{name}.json"))
        except (*ABSENT, ValueError):
            return False
        return isinstance(note, dict) and note.keys() >= NOTE and self.block(key, name).exists()

    def manifest(self, key: str) -> dict[str, Any] | None:
        """The manifest of a payload; None if it is missing or damaged, or a file is missing or has another size.

        If another payload was accepted for the key, its manifest is returned, with the record of it in `accepted`.

        Raises:
            OSError: a file cannot be read, so that nobody knows.
        """
        own = self._published(key)
        if own is not None:
            return own
        for kept, content, record in find_accepted(self.root, key):
            manifest = self._published(kept)
            if manifest is not None and manifest["content"] == content:
                return {**manifest, "accepted": record}
        return None

    def _published(self, key: str) -> dict[str, Any] | None:
        folder = self.payload(key)
        try:
            manifest = read_sealed(folder / MANIFEST)
            whole = manifest.get("key") == key and all(
                (folder / name).stat().st_size == file["size"] for name, file in manifest["files"].items()
            )
        except (*DAMAGED, ValueError):
            return None
        return manifest if whole else None

    def verified(self, key: str, content: str, names: Collection[str]) -> list[Path]:
        """The files and folders among `names` that a payload has, after a check of their SHA-256.

        `content` is the digest of what the payload should hold. Shards of images, which may be many and large, are
        checked by `StoredImages` when they are first read.

        Raises:
            UserError: the payload is not there, holds something else, or a file is damaged.
        """
        manifest = self.manifest(key)
        if manifest is None:
            raise UserError(
                f"{self.payload(key)}: the payload is missing or damaged; run snakemake again, it will be made anew"
            )
        folder = self.payload(manifest["key"])
        if manifest["content"] != content:
            raise UserError(
                f"{folder}: holds other content than the reference says, because it was lost and made again; run "
                "snakemake again, and the reference will be made anew"
            )
        found = set()
        for file, facts in manifest["files"].items():
            top = Path(file).parts[0]
            if top in names:
                found.add(top)
                if not Path(file).match(SHARDS):
                    check_file(folder / file, facts["sha256"])
        return [folder / name for name in names if name in found]

    def find_damage(self, key: str) -> Iterator[Finding]:
        """Hash every file of a payload, and name those that are damaged, missing, unexpected or cannot be read."""
        folder = self.payload(key)
        try:
            manifest = read_sealed(folder / MANIFEST)
        except OSError as error:
            yield Finding.of(folder / MANIFEST, error)
            return
        except ValueError:
            yield Finding(f"{folder / MANIFEST}: damaged")
            return
        if manifest.get("key") != key:
            yield Finding(f"{folder / MANIFEST}: of the payload {manifest.get('key')}, which was put in this place")
            return
        for name, facts in manifest["files"].items():
            try:
                if hash_file(folder / name) != facts["sha256"]:
                    yield Finding(f"{folder / name}: damaged")
            except OSError as error:
                yield Finding.of(folder / name, error)
        known = {folder / name for name in manifest["files"]} | {folder / MANIFEST}
        try:
            found = list_files(folder)
        except OSError as error:
            yield Finding.of(Path(error.filename), error)
            return
        yield from (Finding(f"{path}: not part of the payload") for path in found if path not in known)

    def damaged_acceptances(self) -> Iterator[tuple[Path, str]]:
        """Each acceptance that is damaged, or says of a payload what it does not hold, with a line that tells it."""
        for path in list_acceptances(self.root):
            acceptance = read_acceptance(path)
            if acceptance is None:
                yield path, f"{path}: damaged"
                continue
            for entry in acceptance["stands"].values():
                manifest = self._published(entry["kept"])
                # One whose payload is gone stands for nothing, which is no damage.
                if manifest is not None and manifest["content"] != entry["content"]:
                    yield path, f"{path}: {entry['artifact']} stands for {entry['kept']}, which has other content"
                    break

    def empty_acceptances(self) -> list[Path]:
        """The acceptances all of whose payloads are gone."""
        whole = {path: read_acceptance(path) for path in list_acceptances(self.root)}
        return [
            path
            for path, acceptance in whole.items()
            if acceptance is not None
            and not any(self._published(entry["kept"]) for entry in acceptance["stands"].values())
        ]

    @contextmanager
    def lease(self, key: str, block: str = "", *, patience: float | None = None) -> Iterator[Lease]:
        """The exclusive right to make one payload, or one block of it.

        Another holder is waited for, by default for `lease.WAIT_SECONDS`.

        Raises:
            HeldError: another job still holds it.
            UserError: this user may not write in the store; or another job took the lease meanwhile, and removed files
                of this one.
        """
        scratch = self.scratch(key)
        self._make_scratch(key)
        with hold(scratch, block, leases.WAIT_SECONDS if patience is None else patience) as lease:
            # The previous holder removes the folder after it has published the payload.
            scratch.mkdir(parents=True, exist_ok=True)
            self._look_again(key)
            if not block:
                # What dead holders left. One that was only stopped has lost its lease and publishes nothing.
                for left in scratch.glob("payload-*"):
                    discard(left)
            try:
                yield lease
            except OSError:
                # The next holder may have removed files of this one.
                lease.check()
                raise

    def _make_scratch(self, key: str) -> None:
        scratch = self.scratch(key)
        with suppress(PermissionError):
            scratch.mkdir(parents=True, exist_ok=True)
        self.check_writable()
        _check_writable(scratch)
        _check_writable(scratch / "blocks")

    def check_writable(self) -> None:
        """Check that this user may make payloads here.

        Raises:
            UserError: it may not.
        """
        _check_writable(self.root)
        _check_writable(self.root / ".partial")

    def _look_again(self, key: str) -> None:
        """Let the file system look for a payload that it may still know as absent."""
        # NFS looks again in a folder that is opened, FUSE when a name is to be made. No folder can be linked, so this
        # makes nothing.
        sync_to_disk(self.root)
        with suppress(OSError):
            os.link(self.root, self.payload(key))

    def locks(self) -> list[Path]:
        """All lock files, also those whose holders are dead."""
        return sorted((self.root / ".partial").glob("*.lock*"))

    def is_unfinished(self, key: str) -> bool:
        """Whether a job makes a payload, or was killed before it removed what it worked with."""
        scratch = self.scratch(key)
        return scratch.exists() or scratch.with_suffix(".lock").exists()

    def is_held(self, key: str) -> bool:
        """Whether a job is making a payload."""
        return any(map(is_alive, (self.root / ".partial").glob(f"{key}*.lock")))

    def publish(self, lease: Lease, facts: dict[str, Any], hashes: Hashes | None = None) -> dict[str, Any]:
        """Make `lease.fresh` the read-only payload of the lease's key in one rename; returns the payload's manifest.

        The files in `hashes` have been hashed and are not read again.
        The first publisher wins: if a payload is in its place, it stays. Only one whose damage is confirmed by hashing
        is moved aside.

        Raises:
            UserError: the lease was lost.
        """
        fresh = lease.fresh
        files = list_files(fresh)
        manifest: dict[str, Any] = {
            "key": lease.key,
            **facts,
            "files": {
                str(path.relative_to(fresh)): {
                    "size": path.stat().st_size,
                    "sha256": (hashes or {}).get(find_inode(path)) or hash_file(path),
                }
                for path in files
            },
        }
        for path in files:
            sync_to_disk(path)
        manifest = write_sealed(fresh / MANIFEST, manifest)
        for path in fresh.rglob("*"):
            _make_read_only(path)
        place = self.payload(lease.key)
        lease.check()
        while not _rename_to_new(fresh, place):
            found = list(self.find_damage(lease.key))
            if not found:
                discard(fresh)
                return read_sealed(place / MANIFEST)
            unread = [finding.line for finding in found if not finding.is_damage]
            if unread:
                raise UserError(f"{unread[0]}; the payload there may be whole and is left in its place")
            self.set_aside(place)
        _make_read_only(place)
        sync_to_disk(self.root)
        return manifest

    def set_aside(self, path: Path) -> Path:
        """Rename a damaged payload or acceptance to `.damaged-<name>-<number>`, where no job reads it."""
        # In the same folder, because only its owner may move a read-only folder to another one.
        places = (self.root / f".damaged-{path.name}-{number}" for number in count(1))
        aside = next(place for place in places if not os.path.lexists(place))
        path.rename(aside)
        sync_to_disk(self.root)
        return aside

    def remove(self, key: str) -> None:
        """Remove a payload: first hide it with one rename, then delete it. What other users own may stay hidden."""
        hidden = self.root / f".removed-{key}"
        discard(hidden)
        self.payload(key).rename(hidden)
        discard(hidden)

    def payload_keys(self) -> list[str]:
        """The keys of all payloads, sorted. A folder with another name is none, whoever has put it there."""
        try:
            with os.scandir(self.root) as entries:
                return sorted(entry.name for entry in entries if KEY.fullmatch(entry.name) and entry.is_dir())
        except FileNotFoundError:
            return []


def _check_writable(folder: Path) -> None:
    if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(
            f"{folder}: {name_user(os.geteuid())} may not write here; the store's owner must make its folders writable "
            "for the group (`chmod g+rwxs`), and all its users need `umask 002`: docs/cluster.md"
        )


def _rename_to_new(folder: Path, place: Path) -> bool:
    """Rename a folder with files, unless something is in the place; whether it was renamed."""
    try:
        folder.rename(place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        return False
    return True


def _make_read_only(path: Path) -> None:
    """Take away the right to write. What others may read follows the umask with which the file was made."""
    _change_mode(path, lambda mode: mode & ~0o222)


def discard(folder: Path) -> None:
    """Remove a file, or a folder and its content, also if they are read-only. What other users own may stay."""
    if folder.is_symlink() or not folder.is_dir():
        with suppress(PermissionError):
            folder.unlink(missing_ok=True)
        return
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            _change_mode(path, lambda mode: mode | stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


def _change_mode(path: Path, change: Callable[[int], int]) -> None:
    """Change the mode of a file where that is allowed. Some file systems refuse it to everybody, and all to others."""
    try:
        path.chmod(change(stat.S_IMODE(path.stat().st_mode)))
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.ENOSYS, errno.ENOENT):
            raise
