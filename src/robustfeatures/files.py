"""Atomic writes of files, JSON, CSV, and SHA-256."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import pwd
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

# These errors say that a file is not there. Any other one, such as of a disk or a server, says nothing about the file.
ABSENT = (FileNotFoundError, NotADirectoryError)


def expand_home(folder: str | Path) -> Path:
    """The folder, with the user's home in place of a `~` at its beginning. `~` and an unknown user stays as it is."""
    try:
        return Path(folder).expanduser()
    except RuntimeError:
        return Path(folder)


def write_atomically(path: Path, content: bytes | memoryview, *, durable: bool = True) -> None:
    """Write a file through a temporary file and a rename: readers see the old content or the new.

    With `durable` false the file may be empty after a power failure, but not after a kill.

    Raises:
        OSError: the write fails. The error names the file, which the system's own error for a full disk does not.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        # On a read-only disk this fails too, and would hide why the write failed.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    if durable:
        sync_to_disk(path.parent)


def encode_json(value: Any) -> bytes:
    """The value as indented JSON in UTF-8, with a final newline."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Write a value as JSON, atomically."""
    write_atomically(path, encode_json(value), durable=durable)


def read_json(path: Path) -> Any:
    """The JSON value in a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def holds_json(path: Path, value: Any) -> bool:
    """Whether a file holds this JSON value. One that is missing or cannot be read does not."""
    try:
        return bool(read_json(path) == value)
    except (OSError, ValueError):
        return False


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, by column."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows as CSV. The columns are an argument, because a file may have no row."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def link_or_copy(path: Path, place: Path) -> None:
    """Link a file at `place`. Copy it where the disk has no links, or if another user owns it and keeps its rights.

    The original stays, in case of a kill.
    """
    try:
        if path.stat().st_uid == os.geteuid():
            place.hardlink_to(path)
            return
    except OSError as error:
        if isinstance(error, ABSENT):
            raise
    shutil.copyfile(path, place)


def sync_to_disk(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hash_file(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_text(name: str) -> bool:
    """Whether a text can be written as UTF-8. Python reads a file name's other bytes as lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def name_user(number: int) -> str:
    """The name of a user, or the number where the system has no name for it, as in some containers."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def walk_files(folder: Path) -> Iterator[Path]:
    """All files below a folder, also through links to folders.

    Each folder is visited once, so links that lead back do no harm.
    """
    seen = {os.path.realpath(folder)}
    for place, folders, names in os.walk(folder, followlinks=True):
        below = {os.path.realpath(Path(place, name)): name for name in sorted(folders, reverse=True)}
        folders[:] = sorted(name for real, name in below.items() if real not in seen)
        seen.update(below)
        yield from (Path(place, name) for name in sorted(names))


def list_files(folder: Path) -> list[Path]:
    """All files below a folder, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
