"""The file that marks a folder as a store, with the version of the format in which it was written."""

from __future__ import annotations

from pathlib import Path

from robustfeatures.errors import UserError
from robustfeatures.files import ABSENT, read_json, write_json
from robustfeatures.pipeline.plan.canonical import KEY

FILE = ".format.json"
# To be raised when the files of a store change their meaning, so that no version takes those of another for damaged.
FORMAT = 1


def open_store(root: Path, *, expected: int) -> None:
    """Check that a folder is a store; make it one if it is empty or missing. `expected` references point into it.

    Raises:
        UserError: another version wrote the store, it holds something else, or it is empty or missing although
            references point into it.
    """
    if not (root / FILE).exists():
        payloads = any(KEY.fullmatch(path.parent.name) for path in root.glob("*/manifest.json"))
        # A file system may begin with hidden files and with lost+found.
        others = (
            [] if payloads else [path.name for path in root.glob("*") if not path.name.startswith((".", "lost+found"))]
        )
        if others:
            raise UserError(f"{root}: no store, because it holds {min(others)!r}; give the store a folder of its own")
        if expected and not payloads:
            raise UserError(
                f"{root}: there is no store here, but {expected} references point into it; mount its file system, or "
                "remove results/artifacts to make everything anew"
            )
        write_json(root / FILE, {"format": FORMAT})
    check_format(root)


def check_store(root: Path) -> None:
    """Check that a folder is a store, as planning left it.

    Raises:
        UserError: there is no store, or another version wrote it.
    """
    if not (root / FILE).exists():
        raise UserError(f"{root}: there is no store here; is its file system mounted on this machine?")
    check_format(root)


def check_format(root: Path) -> None:
    """Check that no other version wrote the store, if there is one.

    Raises:
        UserError: another version wrote it.
    """
    try:
        found = read_json(root / FILE)["format"]
    except ABSENT:
        return
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{root / FILE}: damaged; it must say {{'format': {FORMAT}}}") from error
    if found != FORMAT:
        raise UserError(
            f"{root}: a store of another version of this package (format {found}, not {FORMAT}); use that version, or "
            "another store"
        )
