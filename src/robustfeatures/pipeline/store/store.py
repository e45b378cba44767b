"""The store of payloads by key. Each payload is made once and becomes visible in one step."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from filelock import LeaseCompromise, SoftFileLease

from robustfeatures.errors import UserError
from robustfeatures.files import hash_file, hash_file_once, list_files, sync_to_disk
from robustfeatures.pipeline.store.acceptances import find_accepted, list_acceptances, read_acceptance
from robustfeatures.pipeline.store.sealed import read_sealed, write_sealed

MANIFEST = "manifest.json"
# After this time without a sign of life, jobs on other machines consider a job dead. Jobs on the same machine notice
# its end at once.
LEASE_SECONDS = 120.0


@dataclass(frozen=True)
class Store:
    """A folder with payloads, `<key>/`, unfinished work, `.partial/<key>/`, and damaged payloads, `.damaged/`.

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

    def manifest(self, key: str) -> dict[str, Any] | None:
        """The manifest of a payload; None if it is missing or damaged, or a file is missing or has another size.

        If another payload was accepted for the key, its manifest is returned, with the record of it in `accepted`.
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
            whole = all((folder / name).stat().st_size == file["size"] for name, file in manifest["files"].items())
        except (OSError, ValueError):
            return None
        return manifest if whole else None

    def verified(self, key: str, names: Collection[str]) -> list[Path]:
        """The files and folders among `names` that a payload has, after a check of their SHA-256.

        A process hashes each file once.

        Raises:
            UserError: the payload is not there, or a file is damaged.
        """
        manifest = self.manifest(key)
        if manifest is None:
            raise UserError(
                f"{self.payload(key)}: the payload is missing or damaged; run snakemake again, it will be made anew"
            )
        folder = self.payload(manifest["key"])
        found = set()
        for file, facts in manifest["files"].items():
            top = Path(file).parts[0]
            if top in names:
                found.add(top)
                if hash_file_once(folder / file) != facts["sha256"]:
                    raise UserError(
                        f"{folder / file}: damaged; run `robustfeatures verify --repair`, then snakemake again, "
                        "and the payload will be made anew"
                    )
        return [folder / name for name in names if name in found]

    def damages(self, key: str) -> Iterator[str]:
        """One line per damaged, missing or unexpected file of a payload; every file is hashed."""
        folder = self.payload(key)
        try:
            files = read_sealed(folder / MANIFEST)["files"]
        except OSError as error:
            yield f"{folder / MANIFEST}: {error.strerror}"
            return
        except ValueError:
            yield f"{folder / MANIFEST}: damaged"
            return
        for name, facts in files.items():
            try:
                if hash_file(folder / name) != facts["sha256"]:
                    yield f"{folder / name}: damaged"
            except OSError as error:
                yield f"{folder / name}: {error.strerror}"
        known = {folder / name for name in files} | {folder / MANIFEST}
        try:
            yield from (f"{path}: not part of the payload" for path in list_files(folder) if path not in known)
        except OSError as error:
            yield f"{error.filename}: {error.strerror}"

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
    def lease(self, key: str, block: str = "") -> Iterator[Path]:
        """The exclusive right to make one payload, or one block of it; waits for another holder. Yields the scratch."""
        scratch = self.scratch(key)
        scratch.mkdir(parents=True, exist_ok=True)
        lock = scratch.with_suffix(f".{block}.lock" if block else ".lock")
        with SoftFileLease(lock, lease_duration=LEASE_SECONDS, on_compromise=_give_up):
            # The previous holder removes the folder after it has published the payload.
            scratch.mkdir(parents=True, exist_ok=True)
            yield scratch

    def is_held(self, key: str) -> bool:
        """Whether a job is making a payload. The job touches its lock regularly.

        A lock from the future is stale: its job died before the clock was set back.
        """
        now = time.time()
        for lock in self.scratch(key).parent.glob(f"{key}*.lock"):
            # A job may release the lock at this moment.
            with suppress(FileNotFoundError):
                if abs(now - lock.stat().st_mtime) < LEASE_SECONDS:
                    return True
        return False

    def publish(self, key: str, fresh: Path, facts: dict[str, Any]) -> dict[str, Any]:
        """Make the folder `fresh` the read-only payload of `key` in one rename; returns its manifest.

        If a damaged payload is in its place, that one is moved aside first.
        """
        files = list_files(fresh)
        manifest: dict[str, Any] = {
            "key": key,
            **facts,
            "files": {
                str(path.relative_to(fresh)): {"size": path.stat().st_size, "sha256": hash_file(path)} for path in files
            },
        }
        for path in files:
            sync_to_disk(path)
        manifest = write_sealed(fresh / MANIFEST, manifest)
        for path in fresh.rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        place = self.payload(key)
        if os.path.lexists(place):
            self.set_aside(key)
        fresh.rename(place)
        place.chmod(0o555)
        sync_to_disk(self.root)
        return manifest

    def set_aside(self, key: str) -> Path:
        """Move a damaged payload to `.damaged/<key>-<number>`, where no job reads it; returns that folder."""
        place = self.payload(key)
        # Moving a folder to another parent needs the right to write in the folder itself.
        place.chmod(0o755)
        return self._moved_aside(place)

    def set_acceptance_aside(self, path: Path) -> Path:
        """Move a damaged acceptance to `.damaged/`; returns that place."""
        return self._moved_aside(path)

    def _moved_aside(self, place: Path) -> Path:
        folder = self.root / ".damaged"
        folder.mkdir(exist_ok=True)
        aside = next(path for number in count(1) if not os.path.lexists(path := folder / f"{place.name}-{number}"))
        place.rename(aside)
        sync_to_disk(self.root)
        return aside

    def remove(self, key: str) -> None:
        """Remove a payload: first hide it with one rename, then delete it."""
        doomed = self.root / ".partial" / f"{key}.removed"
        discard(doomed)
        doomed.parent.mkdir(parents=True, exist_ok=True)
        place = self.payload(key)
        place.chmod(0o755)
        place.rename(doomed)
        discard(doomed)

    def payload_keys(self) -> list[str]:
        """The keys of all payloads, sorted."""
        if not self.root.is_dir():
            return []
        return sorted(path.name for path in self.root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _give_up(loss: LeaseCompromise) -> None:
    """End this process at once. Another one considered it dead and now makes the payload in the same folder."""
    print(
        f"robustfeatures: {loss.lock_file}: the lease was lost ({loss.reason}); run again", file=sys.stderr, flush=True
    )
    os._exit(1)


def discard(folder: Path) -> None:
    """Remove a file, or a folder and its content, also if they are read-only. Nothing happens if it does not exist."""
    if not folder.is_dir():
        folder.unlink(missing_ok=True)
        return
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)
