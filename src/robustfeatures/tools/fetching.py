"""Fetch the raw data of a study: download and check every published file, and check every file of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.data.own_files import require_path
from robustfeatures.data.preparation import add_default_path
from robustfeatures.data.registry import find_source
from robustfeatures.data.settings import KeepListed
from robustfeatures.engine.registry import load_attribute
from robustfeatures.errors import UserError
from robustfeatures.files import hash_file
from robustfeatures.pipeline.store.verified import read_state, remember_digest
from robustfeatures.pipeline.study.extends import read_values
from robustfeatures.pipeline.study.study import read_study

if TYPE_CHECKING:
    from robustfeatures.data.download import Download
    from robustfeatures.data.settings import Data
    from robustfeatures.models.settings import Pretrained


def fetch(study: Path, raw: Path) -> Iterator[str]:
    """Fetch and check each file that the study in the file `study` reads; yields one line per file.

    The function `downloads(parameters, raw)` of a source module lists its downloads into the folder `raw`. Its function
    `compute_digest(parameters)` returns the SHA-256 of the user's own files; if the study gives no `sha256`, it also
    checks that a published set is complete.

    Raises:
        UserError: the study is wrong; or, after all other files were tried, a file could not be fetched, does not
            exist, or has another SHA-256 than the study says.
    """
    problems: list[str] = []
    for where, check in _checks(study, raw):
        try:
            yield check()
        except UserError as error:
            problems.append(str(error))
        except OSError as error:
            problems.append(f"{where}: {error.filename or 'disk'}: {error.strerror or error}")
    if problems:
        raise UserError("; ".join(dict.fromkeys(problems)))


def _checks(study: Path, raw: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """The checks to do, each with the file and the field that need it."""
    downloaded: set[Path] = set()
    for file, where, given in _sources(study):
        data = add_default_path(given, raw)
        name = find_source(data.source).module
        module = import_module(name)
        if data.path is not None:
            yield (
                f"{where}: data.path",
                partial(_check_own_files, data, load_attribute(f"{name}:compute_digest"), raw, file, where),
            )
        elif hasattr(module, "downloads"):
            fresh = [each for each in module.downloads(data, raw) if each.path not in downloaded]
            downloaded |= {each.path for each in fresh}
            yield from ((f"{where}: data.source", partial(_download, data.source, each)) for each in fresh)
        else:
            nothing = "{}: comes with an installed package, nothing to fetch"
            yield f"{where}: data.source", partial(nothing.format, data.source)
        for operation in data.operations:
            if isinstance(operation, KeepListed):
                yield f"{where}: data.operations: listed.path", partial(_check_list, operation, where)
    for name, pretrained in read_study(study).models.items():
        where = f"{study}: models.{name}"
        yield f"{where}.weights", partial(_check_weights, pretrained, where)


def _check_weights(pretrained: Pretrained, where: str) -> str:
    found = _hash_file(Path(pretrained.weights))
    if pretrained.sha256 is None:
        return f"weights: {pretrained.weights}: write beside this path in {where}: sha256: {found}"
    return f"weights: {pretrained.weights}: " + _compare(
        found, pretrained.sha256, f"{where}.sha256: {pretrained.weights}"
    )


def _sources(study: Path) -> Iterator[tuple[Path, str, Data]]:
    """The file in which the study names each data set that it reads, the path to its field there, and the data set."""
    values = read_values(study)
    for name, data in read_study(study).all_data().items():
        file = values.find_file(f"{name}.path")
        outer = str(file) if name == "data" else f"{file}: {name}"
        for place, given in enumerate(data.iterate_sources()):
            yield file, f"{outer}: data.operations: concatenate" if place else outer, given


def _download(source: str, file: Download) -> str:
    file.fetch()
    return f"{source}: {file.path}: {file.path.stat().st_size} bytes, {file.checksum} as published"


def _check_own_files(data: Data, compute_digest: Callable[[Data], str], raw: Path, file: Path, where: str) -> str:
    try:
        state = read_state(require_path(data))
        found = remember_digest(data.source, state, compute_digest(data))
        if data.source == "folder":
            # Decodes every image, which finds those that are damaged.
            load_attribute(find_source(data.source).loader)(replace(data, sha256=found), raw)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    if data.sha256 is not None:
        return f"{data.source}: {data.path}: " + _compare(found, data.sha256, f"{where}: data.sha256: {data.path}")
    if find_source(data.source).user_folder is not None:
        return f"{data.source}: {data.path}: complete, SHA-256 {found}"
    return f"{data.source}: {data.path}: write beside this path in {file}: sha256: {found}"


def _check_list(operation: KeepListed, where: str) -> str:
    path = Path(operation.path)
    if not path.is_file():
        raise UserError(f"{where}: data.operations: listed.path: {path} does not exist")
    found = _hash_file(path)
    if operation.sha256 is None:
        return f"listed: {path}: write beside this path in {where}: sha256: {found}"
    field = f"{where}: data.operations: listed.sha256: {path}"
    return f"listed: {path}: {path.stat().st_size} bytes, " + _compare(found, operation.sha256, field)


def _hash_file(path: Path) -> str:
    state = read_state(path)
    return remember_digest("file", state, hash_file(path))


def _compare(found: str, expected: str, where: str) -> str:
    if found != expected:
        raise UserError(f"{where} has the SHA-256 {found}, not {expected}; is it damaged, or another one?")
    return f"SHA-256 {found} as in the study"
