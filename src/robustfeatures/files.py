"""Files that are either whole or absent: written beside their place, flushed to disk, then renamed."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from functools import cache
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: bytes | memoryview, *, durable: bool = True) -> None:
    """Write a file so that readers see the old content or the new, whatever happens in between.

    What is not `durable` may be empty after a power failure, but not after a kill.

    Raises:
        OSError: as the system says; it names the file, also where the disk is full, which the system does not.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with fresh.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        fresh.unlink(missing_ok=True)
    if durable:
        sync_to_disk(path.parent)


def encode_json(value: Any) -> bytes:
    """JSON for people and programs, as every file of it is written."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Write JSON, atomically."""
    write_atomically(path, encode_json(value), durable=durable)


def read_json(path: Path) -> Any:
    """The JSON value in a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def sync_to_disk(path: Path) -> None:
    """Make the bytes of a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hash_file(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_file_once(path: Path) -> str:
    """The SHA-256 of a file's bytes; this process reads a file once, unless it was written anew in between."""
    facts = path.stat()
    return _sha256_at(path, facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


@cache
def _sha256_at(path: Path, *facts: int) -> str:
    return hash_file(path)


def list_files(folder: Path) -> list[Path]:
    """All files below a folder, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
