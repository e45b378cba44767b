"""The blocks that a derived set or an evaluation is made of: each is kept as soon as it is finished, by any job."""

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

    def of(self, names: Sequence[str]) -> Sequence[str]:
        """The names that fall to this part; together the parts have each once."""
        first, end = (len(names) * place // self.parts for place in (self.part - 1, self.part))
        return names[first:end]


@dataclass
class Blocks:
    """The blocks of one payload; a job that makes a `share` of them leaves it to another to put all together.

    Beside each lies a note of its SHA-256 and of the seconds it took, written when it is whole.
    """

    store: Store
    key: str
    share: Share
    finished: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether this job makes all blocks and puts them together."""
        return self.share.parts == 1

    @property
    def report(self) -> str:
        """The name of the file in which this job says how far it is."""
        return "progress.json" if self.whole else f"progress-{self.share.part}-of-{self.share.parts}.json"

    def path(self, name: str) -> Path:
        """The file of a finished block."""
        return self.store.block(self.key, name)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Those of this job's share that are not finished yet."""
        return [name for name in self.share.of(names) if not self._note(name).exists()]

    def finish(self, names: Sequence[str], make: Callable[[str, Path], None]) -> None:
        """Have `make` write each missing block of this job's share to a path; no two jobs make the same one at once."""
        self.finished = list(self.share.of(names))
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

    def checked(self, names: Sequence[str]) -> float:
        """The seconds that all blocks took, once each is found as it was written; a damaged one is forgotten.

        Raises:
            UserError: a block is damaged.
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
