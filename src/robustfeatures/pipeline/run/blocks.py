"""The blocks of a derived set or an evaluation. Each block stays in the store once any job has finished it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from robustfeatures.errors import UserError
from robustfeatures.files import hash_file, read_json, sync_to_disk, write_json
from robustfeatures.pipeline.store.store import Store


@dataclass(frozen=True)
class Share:
    """Part `part` of `parts`, counted from 1."""

    part: int
    parts: int

    def select(self, names: Sequence[str]) -> Sequence[str]:
        """The names that belong to this part. Each name belongs to exactly one part."""
        first, end = (len(names) * place // self.parts for place in (self.part - 1, self.part))
        return names[first:end]


@dataclass
class Blocks:
    """The blocks of one payload. A job makes its `share` of them; a job whose share is all of them also joins them.

    Beside each finished block lies a note with its SHA-256 and the seconds it took.
    """

    store: Store
    key: str
    share: Share
    finished: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether this job makes all blocks and joins them."""
        return self.share.parts == 1

    @property
    def report(self) -> str:
        """The name of the file in which this job reports its progress."""
        return "progress.json" if self.is_whole else f"progress-{self.share.part}-of-{self.share.parts}.json"

    def path(self, name: str) -> Path:
        """The file of a finished block."""
        return self.store.block(self.key, name)

    def missing(self, names: Sequence[str]) -> list[str]:
        """The blocks of this job's share that are not finished."""
        return [name for name in self.share.select(names) if not self._note(name).exists()]

    def finish(self, names: Sequence[str], make: Callable[[str, Path], None]) -> None:
        """Call `make(name, path)` for each missing block of this job's share. No two jobs make a block at once."""
        self.finished = list(self.share.select(names))
        for name in self.missing(names):
            with self.store.lease(self.key, name):
                if self._note(name).exists() or self.store.manifest(self.key) is not None:
                    continue
                path = self.path(name)
                fresh = path.parents[1] / f"fresh-{name}"
                began = time.monotonic()
                make(name, fresh)
                sync_to_disk(fresh)
                path.parent.mkdir(exist_ok=True)
                fresh.replace(path)
                note = {"sha256": hash_file(path), "seconds": time.monotonic() - began}
                write_json(self._note(name), note)

    def check(self, names: Sequence[str]) -> float:
        """Check every block against its SHA-256; returns the seconds that all of them took.

        Raises:
            UserError: a block is damaged. Its note is removed, so that the next run makes it again.
        """
        seconds = 0.0
        for name in names:
            note = read_json(self._note(name))
            if hash_file(self.path(name)) != note["sha256"]:
                self._note(name).unlink()
                raise UserError(f"{self.path(name)}: the block is damaged; run again, and it will be made anew")
            seconds += note["seconds"]
        return seconds

    def _note(self, name: str) -> Path:
        return self.path(f"{name}.json")
