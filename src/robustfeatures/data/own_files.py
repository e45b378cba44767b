"""The path and the digest of the user's own files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.data.registry import find_source
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.data.settings import Data

# The names of splits in the user's files, each with the split that it means.
SPLIT_NAMES = {"train": "train", "val": "validation", "valid": "validation", "validation": "validation", "test": "test"}


def require_path(parameters: Data) -> Path:
    """The path in `data.path`.

    Raises:
        UserError: the field is not given, or the path does not exist.
    """
    if parameters.path is None:
        raise UserError(f"data.path: the source {parameters.source!r} needs a path; give that of your file or folder")
    path = Path(parameters.path)
    if not path.exists():
        raise UserError(f"data.path: {path} does not exist")
    return path


def check_digest(parameters: Data, found: str) -> None:
    """Compare the digest of the files with `data.sha256`, which only published sets may omit.

    Raises:
        UserError: they differ, or the field is not given.
    """
    if parameters.sha256 is None and find_source(parameters.source).user_folder is not None:
        return
    if parameters.sha256 is None:
        raise UserError(f"data.sha256: {parameters.path} has the SHA-256 {found}; give it in the recipe")
    if found != parameters.sha256:
        raise UserError(
            f"data.sha256: {parameters.path} has the SHA-256 {found}, not {parameters.sha256}; "
            "is it truncated, or was it changed?"
        )


def combine_digests(digests: Mapping[str, str]) -> str:
    """One SHA-256 of several files, from the SHA-256 of each by relative path."""
    lines = sorted(f"{name} {digest}\n" for name, digest in digests.items())
    # File names need not be valid UTF-8.
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()
