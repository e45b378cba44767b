"""Digests that were computed before on this machine. Files are not hashed again as long as they are unchanged."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from robustfeatures.errors import UserError
from robustfeatures.files import hash_file, walk_files

TABLE = "CREATE TABLE IF NOT EXISTS verified (version TEXT PRIMARY KEY, sha256 TEXT)"


@dataclass(frozen=True)
class State:
    """What the file system says of a file or of all files of a folder; `version` changes with any of them."""

    version: str
    size: int


def read_state(path: Path) -> State:
    """The state of a file or folder, without reading any content.

    Raises:
        OSError: the path cannot be looked at.
    """
    if not path.is_dir():
        return _file_state(path)
    size, lines = 0, hashlib.sha256()
    for file in walk_files(path):
        try:
            state = _file_state(file)
        except OSError:
            # A link to nothing. If it is in place of an image, whoever reads the images says so.
            continue
        size += state.size
        lines.update(f"{file}\0{state.version}\0".encode(errors="surrogateescape"))
    return State(lines.hexdigest(), size)


def _file_state(path: Path) -> State:
    facts = path.stat()
    # The change time cannot be set, so that it tells any change, also one that keeps the time of modification.
    version = ":".join(map(str, (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)))
    return State(version, facts.st_size)


def digest_once(kind: str, state: State, compute: Callable[[], str]) -> str:
    """The digest of this kind that `compute` returned for files in this state, or returns now."""
    return recall_digest(kind, state) or remember_digest(kind, state, compute())


def remember_digest(kind: str, state: State, digest: str) -> str:
    """Remember the digest of this kind of files that were in this state; returns it."""
    _remember(_version(kind, state), digest)
    return digest


def recall_digest(kind: str, state: State) -> str | None:
    """The digest of this kind that was computed on this machine for files in this state; None if none was."""
    return _recall(_version(kind, state))


def _version(kind: str, state: State) -> str:
    return f"{kind} {state.version}"


def has_digest(path: Path, sha256: str) -> bool:
    """Whether a file has this SHA-256.

    Raises:
        OSError: the file cannot be read.
    """
    version = _file_state(path).version
    if _recall(version) == sha256:
        return True
    if hash_file(path) != sha256:
        return False
    _remember(version, sha256)
    return True


def check_file(path: Path, sha256: str) -> None:
    """Check the SHA-256 of a file of a payload.

    Raises:
        UserError: the file is damaged.
    """
    if not has_digest(path, sha256):
        raise UserError(
            f"{path}: damaged; run `robustfeatures verify --repair`, then snakemake again, and the payload will be "
            "made anew"
        )


def _recall(version: str) -> str | None:
    database = _database()
    if database is None:
        return None
    try:
        with closing(sqlite3.connect(database)) as connection:
            found = connection.execute("SELECT sha256 FROM verified WHERE version = ?", (version,)).fetchone()
    except sqlite3.Error:
        return None
    return None if found is None else str(found[0])


def _remember(version: str, sha256: str) -> None:
    database = _database()
    if database is None:
        return
    try:
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute(TABLE)
            connection.execute("INSERT OR REPLACE INTO verified VALUES (?, ?)", (version, sha256))
    except sqlite3.Error:
        # It is hashed again next time.
        return


def _database() -> Path | None:
    """A file on a disk of this machine; None if another user could write there."""
    folder = Path(tempfile.gettempdir()) / f"robustfeatures-verified-{os.geteuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o022
    return folder / "sha256.sqlite" if private else None
