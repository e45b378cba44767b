"""Files that are either whole or absent: written beside their place, flushed to disk, then renamed."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file so that readers see the old content or the new, whatever happens in between.

    What is not `durable` may be empty after a power failure, but not after a kill.
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
    finally:
        fresh.unlink(missing_ok=True)
    if durable:
        sync(path.parent)


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Write JSON for people and programs, atomically."""
    write_atomically(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode(), durable=durable)


def read_json(path: Path) -> Any:
    """The JSON value in a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def sync(path: Path) -> None:
    """Make the bytes of a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_below(folder: Path) -> list[Path]:
    """All files below a folder, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
