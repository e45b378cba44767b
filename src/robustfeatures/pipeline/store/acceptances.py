"""Acceptances: files that record which keys stand for payloads that other code made, each written in one rename.

An acceptance is {when, reason, study, check, compared, stands}. `compared` lists the payloads that were made again: the
artifact, the key of the kept payload, and the equal contents. `stands` maps each new key to the kept key, its content,
the artifact, and the code and libraries before and now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from robustfeatures.files import ABSENT
from robustfeatures.pipeline.plan.canonical import digest
from robustfeatures.pipeline.store.sealed import read_sealed, write_sealed

FOLDER = ".accepted"


def write_acceptance(store: Path, acceptance: Mapping[str, Any]) -> Path:
    """Add an acceptance to the store in the folder `store`. File names sort by time."""
    moment = "".join(one for one in acceptance["when"] if one.isalnum())
    path = store / FOLDER / f"{moment}-{digest(acceptance)}.json"
    write_sealed(path, acceptance)
    return path


def list_acceptances(store: Path) -> list[Path]:
    """All acceptances of a store, the newest first."""
    return sorted((store / FOLDER).glob("*.json"), reverse=True)


def find_accepted(store: Path, key: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The kept payloads that a key stands for, from all undamaged acceptances: (kept key, content, record)."""
    for path in list_acceptances(store):
        acceptance = read_acceptance(path)
        if acceptance is not None and key in acceptance["stands"]:
            entry = acceptance["stands"][key]
            record = {name: acceptance[name] for name in ("when", "reason", "study")}
            compared = [one["artifact"] for one in acceptance["compared"]]
            yield entry["kept"], entry["content"], {**record, "compared": compared, "before": entry["before"]}


def read_acceptance(path: Path) -> dict[str, Any] | None:
    """An acceptance; None if it is missing or damaged."""
    try:
        facts = path.stat()
    except ABSENT:
        return None
    return _read(path, facts.st_ino, facts.st_size, facts.st_mtime_ns)


@cache
def _read(path: Path, *facts: int) -> dict[str, Any] | None:
    try:
        return read_sealed(path)
    except (*ABSENT, ValueError):
        return None
