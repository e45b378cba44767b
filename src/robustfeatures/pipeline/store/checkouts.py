"""The checkouts that use a store: each records which payloads a study of it needs, so that nobody else removes them.

`.checkouts/<digest>.json` has what a study of a checkout needed when it was planned, `.checkouts/<digest>/` what its
jobs have made since.
"""

from __future__ import annotations

import errno
import os
import platform
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from robustfeatures.errors import UserError
from robustfeatures.files import ABSENT, name_user, read_json, write_atomically, write_json
from robustfeatures.pipeline.plan.canonical import digest

FOLDER = ".checkouts"
# The file in a folder of references that tells this checkout from others with the same path, such as on other machines.
NAME_FILE = ".checkout"


@dataclass(frozen=True)
class Checkout:
    """What one study of one checkout needs. `path` is its folder of references, `seen` the time of its last plan.

    `keys` are those of that plan and of the jobs since; also those of earlier plans, until all of a plan is built.
    """

    token: str
    path: str
    study: str
    user: str
    host: str
    seen: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path} on {self.host} ({self.user}, study {self.study}, last seen {self.seen})"

    def is_at(self, references: Path) -> bool:
        """Whether this is the checkout with these references."""
        return (self.token, self.path) == (_token(references), str(references.absolute()))


def register(root: Path, references: Path, study: str, keys: Iterable[str], *, is_whole: bool = True) -> None:
    """Record in the store at `root` what a study of this checkout needs. Nothing happens where it may not be written.

    `references` is the checkout's folder of references. `keys` is read after the notes of jobs have been listed. What
    they noted until then has a reference, so the new list has it if the study still needs it.

    Unless the study `is_whole`, it keeps what it needed before: the change may be undone, or accepted.
    """
    path, token = str(references.absolute()), _token(references)
    if not token:
        token = secrets.token_hex(8)
        write_atomically(references / NAME_FILE, token.encode())
    place = _place(root, references, study)
    notes = _list_notes(place)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    checkout = Checkout(token, path, study, name_user(os.getuid()), platform.node(), now, ())
    same = list(_find_same(root, checkout))
    before = () if is_whole else (key for _, one in same for key in one.keys)
    checkout = replace(checkout, keys=tuple(sorted({*before, *keys})))
    with _where_it_may_be_written():
        write_json(place, asdict(checkout), durable=False)
        for note in notes:
            note.unlink(missing_ok=True)
        _forget_earlier((path for path, _ in same), place)


def _find_same(root: Path, checkout: Checkout) -> Iterator[tuple[Path, Checkout]]:
    """The lists of this study of this checkout, with their files.

    They include those of before its folder of references was removed, and those of before it was moved.
    """
    for path in (root / FOLDER).glob("*.json"):
        # Someone else may have damaged theirs.
        with suppress(UserError, *ABSENT):
            found = _read(path)
            same_place, same_token = found.path == checkout.path, found.token == checkout.token
            if (found.host, found.user, found.study) == (checkout.host, checkout.user, checkout.study) and (
                same_place or (same_token and not Path(found.path).exists())
            ):
                yield path, found


def _forget_earlier(lists: Iterable[Path], place: Path) -> None:
    """Remove the earlier lists of one study of one checkout, whose list is at `place` now.

    Nobody else would, and its payloads would stay for ever. Other studies keep theirs until they are planned again.
    """
    for path in lists:
        if path != place:
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink(missing_ok=True)


def note_needed(root: Path, references: Path, study: str, key: str) -> None:
    """Add to what a study of this checkout needs, in the store at `root`. A job does so after its reference is there.

    Otherwise nobody would know of what a run has made until the study is planned again, which may be weeks later.
    """
    note = _place(root, references, study).with_suffix("") / key
    with _where_it_may_be_written():
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()


@contextmanager
def _where_it_may_be_written() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise


def _place(root: Path, references: Path, study: str) -> Path:
    return root / FOLDER / f"{digest([_token(references), str(references.absolute()), study])}.json"


def _list_notes(place: Path) -> list[Path]:
    with suppress(*ABSENT):
        return list(place.with_suffix("").iterdir())
    return []


def list_checkouts(root: Path) -> list[Checkout]:
    """All checkouts of a store.

    Raises:
        UserError: one of their files is damaged.
    """
    return [_read(path) for path in sorted((root / FOLDER).glob("*.json"))]


def _read(path: Path) -> Checkout:
    try:
        found = read_json(path)
        keys = {*found["keys"], *(note.name for note in _list_notes(path))}
        return Checkout(**{**found, "keys": tuple(sorted(keys))})
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: damaged; remove it, and the next run of its checkout writes it again") from error


def _token(references: Path) -> str:
    try:
        return (references / NAME_FILE).read_text()
    except (*ABSENT, UnicodeDecodeError):
        return ""
