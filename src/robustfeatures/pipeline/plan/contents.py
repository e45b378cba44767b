"""Checks of a plan against the user's own files, where they are there, before anything is computed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from robustfeatures.data.own_files import SPLIT_NAMES
from robustfeatures.data.registry import find_source
from robustfeatures.data.settings import (
    Concatenate,
    Data,
    KeepClasses,
    KeepListed,
    KeepNamed,
    MergeClasses,
    Relabel,
    Subset,
)
from robustfeatures.engine.registry import load_attribute
from robustfeatures.errors import UserError, suggest
from robustfeatures.files import hash_file, is_text
from robustfeatures.models.settings import Pretrained
from robustfeatures.pipeline.plan.sizes import data_size
from robustfeatures.pipeline.store.verified import State, digest_once, read_state, recall_digest

# More bytes are not read by a plan, which is to take a second.
MOST_BYTES = 1 << 28
# With a larger label the classes are not listed. The job says what is wrong with such labels.
MOST_CLASSES = 100_000


def check_contents(data: Data, where: str) -> None:
    """Check the digest of the user's own files, and the classes and operations of the data set in the field `where`.

    Raises:
        UserError: a SHA-256 is missing, or a file has another one than the study says; the files have a wrong layout;
            the name of a class is no text; an operation names a class that is not there, fewer than two classes are
            left, or a subset has more samples than its split.
    """
    classes = None
    for each, place in data.iterate_fields(where):
        source, listed = find_source(each.source), _list_classes(each)
        if each is data:
            classes = listed
        for name in listed or ():
            # Names of classes stand in tables and on the page, which are UTF-8.
            if not is_text(name):
                raise UserError(f"{place}.path: {each.path}: the name of the class {name!r} is not UTF-8; rename it")
        if source.has_own_files:
            compute = load_attribute(f"{source.module}:compute_digest")
            path = Path(str(each.path))
            _check_digest(path, each.sha256, partial(compute, each), place, "path", kind=each.source)
        for number, operation in enumerate(each.operations):
            if isinstance(operation, KeepListed):
                path = Path(operation.path)
                _check_digest(path, operation.sha256, partial(hash_file, path), f"{place}.operations.{number}", "path")
    for number, operation in enumerate(data.operations):
        place = f"{where}.operations.{number}"
        if isinstance(operation, Subset):
            _check_subset(data, operation, number, place)
        elif classes is not None:
            classes = _change_classes(classes, operation, place)
    if count_classes(data) == 1:
        name = "" if classes is None else f", {classes[0]}"
        raise UserError(f"{where}: holds one class{name}; a network needs two")


def check_weights(pretrained: Pretrained, where: str) -> None:
    """Check the digest of the weights in the field `where`.

    Raises:
        UserError: the SHA-256 is missing, or the file has another one than the study says.
    """
    path = Path(pretrained.weights)
    _check_digest(path, pretrained.sha256, partial(hash_file, path), where, "weights")


def _check_digest(
    path: Path, expected: str | None, compute: Callable[[], str], where: str, named: str, *, kind: str = "file"
) -> None:
    """Check the digest in `where`.sha256 of the file that `where`.`named` names."""
    if expected is None:
        # The study that names the file lacks the digest, not one that it extends.
        raise UserError(f"{where}.{named}: {path} has no sha256; `robustfeatures fetch --study NAME` prints it")
    found = None
    # What is not there, or cannot be read, is told by the job that reads it. Its result may be in the store.
    with suppress(OSError):
        state = read_state(path)
        small = state.size <= MOST_BYTES
        found = _compute_digest(kind, state, compute, where) if small else recall_digest(kind, state)
        if found is None:
            print(
                f"robustfeatures: {where}.sha256: {path} has {state.size / 1e9:.1f} GB, which a plan does not read; "
                "after a change, `robustfeatures fetch` compares them",
                file=sys.stderr,
            )
    if found is not None and found != expected:
        raise UserError(
            f"{where}.sha256: {path} has the SHA-256 {found}, not {expected}; is it damaged, or another one?"
        )


def _compute_digest(kind: str, state: State, compute: Callable[[], str], where: str) -> str:
    try:
        return digest_once(kind, state, compute)
    except UserError as error:
        # The source calls its field `data`, whatever it is in the study.
        raise UserError(re.sub(r"^data\b", where, str(error))) from error


def count_classes(data: Data) -> int | None:
    """The number of classes of a data set after all operations; None if only the job can count them."""
    listed = _list_classes(data)
    count = find_source(data.source).classes if listed is None else len(listed)
    for operation in data.operations:
        match operation:
            case KeepClasses(keep=keep):
                count = len(keep)
            case MergeClasses(groups=groups):
                count = len(groups)
    return count


def _list_classes(data: Data) -> list[str] | None:
    """The classes of a folder of images or of an .npz; None for other sources, and for what the job refuses."""
    if data.source == "npz" and data.path:
        return _list_npz_classes(Path(data.path))
    if data.source != "folder" or not data.path:
        return None
    folders = _folders(Path(data.path))
    splits = [name for name in folders if name in SPLIT_NAMES and _folders(Path(data.path) / name)]
    return (_folders(Path(data.path) / splits[0]) if splits else folders) or None


def _list_npz_classes(path: Path) -> list[str] | None:
    """The class names of an .npz, or without these the numbers of its labels."""
    import numpy as np

    # Damaged files raise many kinds of errors. The job that reads them names the file and the error.
    with suppress(Exception):
        if path.stat().st_size <= MOST_BYTES:
            with np.load(path) as file:
                if "class_names" in file.files:
                    return [name.decode() if isinstance(name, bytes) else str(name) for name in file["class_names"]]
                largest = max(int(file[name].max()) for name in file.files if name.endswith("labels"))
                return [str(number) for number in range(largest + 1)] if largest < MOST_CLASSES else None
    return None


def _folders(path: Path) -> list[str]:
    if not path.is_dir():
        return []
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _change_classes(classes: list[str], operation: object, where: str) -> list[str]:
    """The classes after an operation."""
    match operation:
        case KeepClasses(keep=keep):
            _check_known(keep, classes, f"{where}.keep")
            return list(keep)
        case MergeClasses(groups=groups):
            for name, members in groups.items():
                _check_known(members, classes, f"{where}.groups.{name}")
            return list(groups)
        case Relabel(mapping=mapping):
            _check_known([*mapping, *mapping.values()], classes, f"{where}.mapping")
    return classes


def _check_known(names: Iterable[str], classes: Iterable[str], where: str) -> None:
    for name in names:
        if name not in classes:
            raise UserError(f"{where}: there is no class {name!r}{suggest(name, classes)}")


def _at_most(data: Data) -> Data:
    """The data set without the operations that choose images: how many of them are left is only estimated."""
    kept = (
        each for each in data.operations if not isinstance(each, KeepClasses | MergeClasses | KeepListed | KeepNamed)
    )
    operations = (replace(each, data=_at_most(each.data)) if isinstance(each, Concatenate) else each for each in kept)
    return replace(data, operations=tuple(operations))


def _check_subset(data: Data, operation: Subset, number: int, where: str) -> None:
    size = data_size(_at_most(replace(data, operations=data.operations[:number])))
    counts: Mapping[str, int] = {} if size is None else size.images
    there = counts.get(operation.split)
    if there is not None and operation.samples > there:
        raise UserError(f"{where}.samples: {operation.samples} is more than the {there} images of {operation.split}")
