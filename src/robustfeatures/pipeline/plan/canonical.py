"""Canonical JSON and digests: equal values have equal digests on every machine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from typing import Any

DIGEST_LENGTH = 16
# The name of a payload in a store or a remote.
KEY = re.compile(f"[0-9a-f]{{{DIGEST_LENGTH}}}")


def to_json(value: Any) -> Any:
    """Dataclasses, tuples and mappings as JSON values. Floats stay floats, so that 1, 1.0 and true stay different."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: to_json(item) for name, item in _fields(value).items()}
    if isinstance(value, dict):
        return {str(name): to_json(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    return value


def canonical_json(value: Any) -> str:
    """JSON with sorted names and no spaces.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    return json.dumps(
        value, default=_fields, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
    )


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def digest(value: Any) -> str:
    """The first 16 hexadecimal digits (64 bits) of the SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:DIGEST_LENGTH]
