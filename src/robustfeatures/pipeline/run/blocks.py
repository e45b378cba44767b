"""The blocks of a derived set or an evaluation. Each block stays in the store once any job has finished it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from robustfeatures.errors import UserError
from robustfeatures.files import hash_file, read_json, sync_to_disk, write_json
from robustfeatures.pipeline.run.device_models import DeviceModels
from robustfeatures.pipeline.store.content import Hashes, find_inode
from robustfeatures.pipeline.store.lease import in_turn
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

    Beside each finished block lies a note with its SHA-256, the seconds it took, and the device that made it. `models`
    are the devices of this job and of the blocks so far. A job that `can_make` no blocks only joins them. The job waits
    `patience` seconds for a block that another job makes, by default as `in_turn` does.
    """

    store: Store
    key: str
    share: Share
    models: DeviceModels = field(default_factory=DeviceModels)
    can_make: bool = True
    patience: float | None = None
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
        return [name for name in self.share.select(names) if not self.store.has_block(self.key, name)]

    def finish(self, names: Sequence[str], make: Callable[[str, Path], None]) -> None:
        """Call `make(name, path)` for each missing block of this job's share. No two jobs make a block at once.

        Raises:
            HeldError: nothing is left but blocks that other jobs make, and they take too long.
            UserError: another model of GPU made other blocks; or a block is missing that this job cannot make.
        """
        self.finished = list(self.share.select(names))
        for name in names:
            if self.store.has_block(self.key, name):
                self.models.add(read_json(self._note(name))["device"], self.path(name))
        missing = self.missing(names)
        if missing and not self.can_make:
            raise UserError(f"{self.path(missing[0])}: the block is missing, and this job only joins blocks; run again")
        in_turn(missing, lambda name, patience: self._finish(name, make, patience), self.patience)

    def _finish(self, name: str, make: Callable[[str, Path], None], patience: float) -> None:
        with self.store.lease(self.key, name, patience=patience) as lease:
            if self.store.has_block(self.key, name) or self.store.manifest(self.key) is not None:
                return
            path = self.path(name)
            self.models.add(self.models.own, path)
            began = time.monotonic()
            make(name, lease.fresh)
            sync_to_disk(lease.fresh)
            lease.check()
            path.parent.mkdir(exist_ok=True)
            lease.fresh.replace(path)
            seconds = time.monotonic() - began
            write_json(self._note(name), {"sha256": hash_file(path), "seconds": seconds, "device": self.models.own})

    @contextmanager
    def read(self) -> Iterator[None]:
        """Read the finished blocks. If that fails because one is damaged, say so.

        Raises:
            UserError: as `check`.
        """
        try:
            yield
        except Exception:
            self.check(self.finished)
            raise

    def check(self, names: Sequence[str], hashes: Hashes | None = None) -> float:
        """Check every block against its SHA-256; returns the seconds that all of them took.

        The files in `hashes` have been hashed and are not read again.

        Raises:
            UserError: a block is gone or damaged; the next run makes it again. Or other models of GPUs made other
                blocks meanwhile.
        """
        seconds = 0.0
        for name in names:
            note = read_json(self._note(name))
            self.models.add(note["device"], self.path(name))
            path = self.path(name)
            if not path.exists():
                raise UserError(f"{path}: the block is gone; run again, and it will be made anew")
            found = (hashes or {}).get(find_inode(path)) or hash_file(path)
            if found != note["sha256"]:
                self._note(name).unlink()
                raise UserError(f"{path}: the block is damaged; run again, and it will be made anew")
            seconds += note["seconds"]
        return seconds

    def _note(self, name: str) -> Path:
        return self.path(f"{name}.json")
