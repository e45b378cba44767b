"""Payloads by key: where they lie, how they are made once, and how they become visible in one step."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import LeaseCompromise, SoftFileLease

from robustfeatures.store.files import file_sha256, files_below, read_json, sync, write_json

MANIFEST = "manifest.json"
# A job that has not been heard of for this long is taken for dead by jobs on other machines; on the same machine its
# end is noticed at once.
LEASE_SECONDS = 120.0


@dataclass(frozen=True)
class Store:
    """A folder of payloads, `<key>/`, and of unfinished work, `.partial/<key>/`."""

    root: Path

    def payload(self, key: str) -> Path:
        """The folder of a payload, whether it is there or not."""
        return self.root / key

    def scratch(self, key: str) -> Path:
        """The folder in which a payload is being made; it outlives a job that dies."""
        return self.root / ".partial" / key

    def block(self, key: str, name: str) -> Path:
        """The finished block of a payload that is being made, a file, whether it is there or not."""
        return self.scratch(key) / "blocks" / name

    def manifest(self, key: str) -> dict[str, Any] | None:
        """What was published under a key, or None unless every file is there in its full size."""
        folder = self.payload(key)
        try:
            manifest: dict[str, Any] = read_json(folder / MANIFEST)
            whole = all((folder / name).stat().st_size == file["size"] for name, file in manifest["files"].items())
        except (OSError, ValueError, KeyError):
            return None
        return manifest if whole else None

    @contextmanager
    def lease(self, key: str, block: str = "") -> Iterator[Path]:
        """Sole right to make one payload, or one block of it; waits for another holder. Yields the scratch folder."""
        scratch = self.scratch(key)
        scratch.mkdir(parents=True, exist_ok=True)
        lock = scratch.with_suffix(f".{block}.lock" if block else ".lock")
        with SoftFileLease(lock, lease_duration=LEASE_SECONDS, on_compromise=_give_up):
            # The holder we waited for removes the folder when it has published.
            scratch.mkdir(parents=True, exist_ok=True)
            yield scratch

    def publish(self, key: str, fresh: Path, facts: dict[str, Any]) -> dict[str, Any]:
        """Make the folder `fresh` the payload of `key`, read-only, in one rename; returns its manifest.

        A damaged payload in its place is moved aside first.
        """
        files = files_below(fresh)
        manifest = {
            "key": key,
            **facts,
            "files": {
                str(path.relative_to(fresh)): {"size": path.stat().st_size, "sha256": file_sha256(path)}
                for path in files
            },
        }
        for path in files:
            sync(path)
        write_json(fresh / MANIFEST, manifest)
        for path in fresh.rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        place = self.payload(key)
        if place.exists():
            self.remove(key)
        fresh.rename(place)
        place.chmod(0o555)
        sync(self.root)
        return manifest

    def remove(self, key: str) -> None:
        """Remove a payload: out of sight in one rename, then from disk."""
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
    """End this process at once: another one took it for dead, and now makes the payload in the same folder."""
    print(
        f"robustfeatures: {loss.lock_file}: the lease was lost ({loss.reason}); run again", file=sys.stderr, flush=True
    )
    os._exit(1)


def discard(folder: Path) -> None:
    """Remove a folder and what is in it, read-only or not; nothing happens where it does not exist."""
    if not folder.exists():
        return
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)
