"""The file that marks a folder as a store, or a place as a remote, with the version of the format of what is there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from robustfeatures.errors import UserError
from robustfeatures.files import ABSENT, read_json, write_json
from robustfeatures.pipeline.plan.canonical import KEY
from robustfeatures.pipeline.store.sealed import MANIFEST

FILE = ".format.json"
# To be raised when the files of a store change their meaning, so that no version takes those of another for damaged.
FORMAT = 1

Kind = Literal["store", "remote"]
# The name of a file in a remote is its SHA-256.
OBJECT = re.compile("[0-9a-f]{64}")


def open_store(root: Path, *, expected: int) -> None:
    """Check that a folder is a store; make it one if it is empty or missing. `expected` references point into it.

    Raises:
        UserError: another version wrote the store, it is a remote or holds something else, or it is empty or missing
            although references point into it.
    """
    if not (root / FILE).exists():
        payloads = any(KEY.fullmatch(path.parent.name) for path in root.glob("*/manifest.json"))
        if not payloads:
            check_own_folder("store", str(root), [path.name for path in root.glob("*")])
        if expected and not payloads:
            raise UserError(
                f"{root}: there is no store here, but {expected} references point into it; mount its file system, or "
                "remove results/artifacts to make everything anew"
            )
        check_kind({}, "store", str(root), lambda: _has_objects(root))
        write_json(root / FILE, make_marker("store"))
    check_format(root)


def check_store(root: Path) -> None:
    """Check that a folder is a store, as planning left it.

    Raises:
        UserError: there is no store, it is a remote, or another version wrote it.
    """
    if not (root / FILE).exists():
        raise UserError(f"{root}: there is no store here; is its file system mounted on this machine?")
    check_format(root)


def check_format(root: Path) -> None:
    """Check that a folder, if it is marked, is a store that no other version wrote.

    Raises:
        UserError: another version wrote it, or it is a remote.
    """
    try:
        marker = read_json(root / FILE)
        found = marker["format"]
    except ABSENT:
        return
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{root / FILE}: damaged; it must say {json.dumps(make_marker('store'))}") from error
    if found != FORMAT:
        raise UserError(
            f"{root}: a store of another version of this package (format {found}, not {FORMAT}); use that version, or "
            "another store"
        )
    check_kind(marker, "store", str(root), lambda: _has_objects(root))


def make_marker(kind: Kind) -> dict[str, Any]:
    """The content of the file that marks a store or a remote."""
    return {"format": FORMAT, "kind": kind}


def check_own_folder(kind: Kind, place: str, names: Collection[str]) -> None:
    """Check that a place without a mark, which holds these names beside payloads, holds nothing else.

    Raises:
        UserError: it does.
    """
    # A file system may begin with hidden files and with lost+found.
    others = [name for name in names if not name.startswith((".", "lost+found"))]
    if others:
        raise UserError(f"{place}: no {kind}, because it holds {min(others)!r}; give the {kind} a folder of its own")


def check_kind(marker: Mapping[str, Any], kind: Kind, place: str, is_other: Callable[[], bool]) -> None:
    """Check that a place is marked as a store, or as a remote.

    An earlier version marked both in the same way. Then `is_other` tells from what lies there.

    Raises:
        UserError: it is the other one. The payloads of one count as damaged in the other.
    """
    other = "remote" if kind == "store" else "store"
    if marker.get("kind") == other or ("kind" not in marker and is_other()):
        raise UserError(f"{place}: a {other}, not a {kind}; give the {kind} a folder of its own")


def _has_objects(root: Path) -> bool:
    """Whether the first payload in a folder has the form that it has in a remote, and no other files."""
    payload = next((path for path in root.glob("*/") if KEY.fullmatch(path.name)), None)
    names = set() if payload is None else {path.name for path in payload.iterdir()} - {MANIFEST}
    return bool(names) and all(map(OBJECT.fullmatch, names))
