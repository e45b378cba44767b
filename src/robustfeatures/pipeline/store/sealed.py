"""JSON files with their own digest, which shows any damage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robustfeatures.files import encode_json, write_json
from robustfeatures.pipeline.plan.canonical import digest

# The sealed file that lists the files of a payload.
MANIFEST = "manifest.json"


def write_sealed(path: Path, value: Mapping[str, Any]) -> dict[str, Any]:
    """Write JSON with its digest as its last field, atomically; returns what was written."""
    sealed = {**value, "seal": digest(value)}
    write_json(path, sealed)
    return sealed


def read_sealed(path: Path) -> dict[str, Any]:
    """Read a file of `write_sealed` and check that it is exactly as it was written.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged.
    """
    return parse_sealed(path.read_bytes(), str(path))


def parse_sealed(content: bytes, where: str) -> dict[str, Any]:
    """The value in the bytes of a file of `write_sealed`; `where` names the file in messages.

    Raises:
        ValueError: it is damaged.
    """
    value: dict[str, Any] = json.loads(content)
    if not isinstance(value, dict) or content != encode_json(value):
        raise ValueError(f"{where}: not as it was written")
    if digest({name: item for name, item in value.items() if name != "seal"}) != value.get("seal"):
        raise ValueError(f"{where}: its seal is broken")
    return value
