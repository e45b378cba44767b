"""The code behind an artifact: the modules that its entries reach through imports, and the libraries these import.

An entry may also be the path of the user's own Python file (`models/own_files.py`), which counts under its name.

An import reaches a module wherever it stands, also inside a function. A package's `__init__` is never reached: a name
that it re-exports leads to the module that defines it. `import_module` loads modules that parameters choose, and these
are among the entries of the recipe that chooses them. A library that `import_module` loads by a literal name counts.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.syntax import describe_tree, is_type_checking, strip_wording

PACKAGE = "robustfeatures"
ROOT = Path(__file__).resolve().parents[2]

# This module sets how torch computes, in every job that uses it.
TORCH_SETTINGS = f"{PACKAGE}.engine.determinism"
# Modules that make no number: command line, messages, plan, store, jobs.
OUTSIDE = ("cli", "errors", "files", "pipeline", "tools")
# These modules write tables and pages. They are part of the identity of views; no science imports them.
REPORT = f"{PACKAGE}.pipeline.report."
# Modules of these names hold parameters and the tables of names. Their values are in the parameters of each recipe.
# Views also show their words, such as the titles of attacks.
PARAMETER_MODULES = ("settings", "registry")
# Libraries that show progress or let processes take turns. They change no number.
NO_SCIENCE = frozenset({"filelock", "tqdm"})


@dataclass(frozen=True)
class Reach:
    """The modules of this package that entries reach, with the digests of their sources, and the names of libraries.

    A library has the name that imports use, such as `sklearn`.
    """

    modules: dict[str, str]
    libraries: frozenset[str]


def reach(entries: Iterable[str], *, of_view: bool = False) -> Reach:
    """The modules and libraries that `entries` (`<module>` or `<module>:<function>`) reach, entries included.

    A view also reaches the `PARAMETER_MODULES`.

    Raises:
        ValueError: an imported name is neither a module of the package nor re-exported by its `__init__`.
        UserError: the user's own file is gone, or imports the files beside it.
    """
    modules: dict[str, str] = {}
    libraries: set[str] = set()
    waiting = [entry if own_file_name(entry) else entry.partition(":")[0] for entry in entries]
    while waiting:
        module = waiting.pop()
        name = own_file_name(module) or module
        if name in modules:
            continue
        digest, imports = _read(_source(module))
        modules[name] = digest
        for imported in imports:
            if imported.top != PACKAGE and not imported.level:
                libraries.add(imported.top)
                waiting += [TORCH_SETTINGS] if imported.top == "torch" else []
            else:
                waiting += [found for found in _modules(imported, module) if not _is_outside(found, of_view=of_view)]
    return Reach(modules, frozenset(libraries - sys.stdlib_module_names - NO_SCIENCE))


def is_module(name: str) -> bool:
    """Whether this package has a module of that name."""
    return _path(name) is not None


def own_file_name(entry: str) -> str | None:
    """The name of the user's own file, if the entry is a path."""
    return Path(entry).name if entry.endswith(".py") else None


def clear_caches() -> None:
    """Clear the caches, so that a job can check whether its code was edited while it ran."""
    for cached in (_path, _source):
        cached.cache_clear()


def _is_outside(module: str, *, of_view: bool) -> bool:
    parts = module.split(".")
    if module.startswith(REPORT):
        return False
    return parts[1] in OUTSIDE or (parts[-1] in PARAMETER_MODULES and not of_view)


@dataclass(frozen=True)
class _Import:
    """`import module`, or `from module import name`, with `level` dots before the module."""

    module: str
    name: str | None = None
    level: int = 0

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]


def _modules(imported: _Import, importer: str) -> Iterator[str]:
    """The modules that an import within this package leads to, without the `__init__` of packages."""
    module = imported.module
    if imported.level:
        if own_file_name(importer):
            raise UserError(f"{importer}: imports {'.' * imported.level}{module}; a file of one's own stands alone")
        package = importer if _is_package(importer) else importer.rpartition(".")[0]
        module = resolve_name("." * imported.level + module, package)
    if not _is_package(module):
        yield module
        return
    found = _read(_source(module), exported=True)[1]
    exported = {one.name: one for one in found if one.name is not None and (one.level or one.top == PACKAGE)}
    if imported.name is None:
        # An import of the package itself gives access to everything that it re-exports.
        for one in exported.values():
            yield from _modules(one, module)
        return
    below = f"{module}.{imported.name}"
    if _path(below) is not None:
        yield from _modules(_Import(below), module)
    elif imported.name in exported:
        yield from _modules(exported[imported.name], module)
    else:
        raise ValueError(f"{importer}: takes {imported.name} from {module}, which imports it from nowhere")


def _is_package(module: str) -> bool:
    path = _path(module)
    return path is not None and path.name == "__init__.py"


@cache
def _path(module: str) -> Path | None:
    if own_file_name(module):
        return Path(module)
    folder = ROOT.joinpath(*module.split(".")[1:])
    for path in (folder.with_suffix(".py"), folder / "__init__.py"):
        if path.is_file() and module.split(".")[0] == PACKAGE:
            return path
    return None


@cache
def _source(module: str) -> str:
    path = _path(module)
    if path is None:
        raise ValueError(f"{module} is not a module of {PACKAGE}")
    try:
        # With the encoding that the file declares, as Python reads it.
        with tokenize.open(path) as file:
            return file.read()
    except FileNotFoundError:
        raise UserError(f"{path}: the file is gone, and networks of the study are made by it") from None


@cache
def _read(source: str, *, exported: bool = False) -> tuple[str, tuple[_Import, ...]]:
    """The digest of a module without its wording, and its imports; with `exported` also the imports for type checkers.

    The cache is by text, so that a module without edits is parsed once.
    """
    tree = ast.parse(source)
    imports = tuple(_imports(tree, exported=exported, calls="import_module" in source))
    return hashlib.sha256(describe_tree(strip_wording(tree)).encode()).hexdigest(), imports


def _imports(node: ast.AST, *, exported: bool, calls: bool) -> Iterator[_Import]:
    """The imports below a node; without `calls` expressions, most of a tree, are passed over."""
    match node:
        case ast.If() if is_type_checking(node) and not exported:
            yield from _imports(ast.Module(node.orelse, []), exported=exported, calls=calls)
            return
        case ast.Import(names=names):
            yield from (_Import(one.name) for one in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            yield from (_Import(module or "", one.name, level) for one in names)
        case ast.Call(
            func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            if name.partition(".")[0] != PACKAGE:
                yield _Import(name)
    for below in ast.iter_child_nodes(node):
        if calls or not isinstance(below, ast.expr):
            yield from _imports(below, exported=exported, calls=calls)
