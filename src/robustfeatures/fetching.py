"""Raw data before it is needed: every download of a study brought and checked, every file of the user's own checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.data.preparing import placed
from robustfeatures.data.registry import source_entry
from robustfeatures.errors import UserError
from robustfeatures.recipes.parameters import Listed
from robustfeatures.recipes.study import read_study
from robustfeatures.store.files import file_sha256

if TYPE_CHECKING:
    from types import ModuleType

    from robustfeatures.data.download import Download
    from robustfeatures.recipes.parameters import Data


def fetch(study: Path, raw: Path) -> Iterator[str]:
    """One line for each file that the study in the file `study` reads, once it is there and checked.

    A source module names what it downloads, into the folder `raw`, by its function `downloads(parameters, raw)`, and
    gives the SHA-256 of the user's own files by its function `own_digest(parameters)`.

    Raises:
        UserError: the study is wrong; or, after everything else was tried, what could not be fetched, does not exist,
            or is not what the study says.
    """
    problems: list[str] = []
    for check in _checks(study, raw):
        try:
            yield check()
        except UserError as error:
            problems.append(str(error))
    if problems:
        raise UserError("; ".join(problems))


def _checks(study: Path, raw: Path) -> Iterator[Callable[[], str]]:
    downloaded: set[Path] = set()
    sources = [given for data in read_study(study).all_data().values() for given in data.all_sources()]
    for given in sources:
        data = placed(given, raw)
        module = import_module(source_entry(data.source).partition(":")[0])
        if data.path is not None:
            yield partial(_own_files, data, module, study)
        elif hasattr(module, "downloads"):
            fresh = [file for file in module.downloads(data, raw) if file.path not in downloaded]
            downloaded |= {file.path for file in fresh}
            yield from (partial(_download, data.source, file) for file in fresh)
        else:
            yield partial("{}: comes with an installed package, nothing to fetch".format, data.source)
        for operation in data.operations:
            if isinstance(operation, Listed):
                yield partial(_list, operation, study)


def _download(source: str, file: Download) -> str:
    file.bring()
    return f"{source}: {file.path}: {file.path.stat().st_size} bytes, {file.checksum} as published"


def _own_files(data: Data, module: ModuleType, study: Path) -> str:
    try:
        found: str = module.own_digest(data)
    except UserError as error:
        raise UserError(f"{study}: {error}") from error
    if data.sha256 is None:
        return f"{data.source}: {data.path}: write beside this path in {study}: sha256: {found}"
    return f"{data.source}: {data.path}: " + _compared(found, data.sha256, f"{study}: data.sha256: {data.path}")


def _list(operation: Listed, study: Path) -> str:
    path = Path(operation.path)
    if not path.is_file():
        raise UserError(f"{study}: data.operations: listed.path: {path} does not exist")
    where = f"{study}: data.operations: listed.sha256: {path}"
    return f"listed: {path}: {path.stat().st_size} bytes, " + _compared(file_sha256(path), operation.sha256, where)


def _compared(found: str, expected: str, where: str) -> str:
    if found != expected:
        raise UserError(f"{where} has the SHA-256 {found}, not {expected}; is it damaged, or another one?")
    return f"SHA-256 {found} as in the study"
