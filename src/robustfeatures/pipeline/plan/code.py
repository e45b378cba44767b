"""The digest of the code that makes an artifact: the modules its stage imports, transitively, as syntax trees."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

from robustfeatures.pipeline.plan.canonical import digest

PACKAGE = "robustfeatures"
ROOT = Path(__file__).resolve().parents[2]

# These only say in which module a name lives; which module that is enters each recipe by itself.
NAME_TABLES = frozenset({PACKAGE, *(f"{PACKAGE}.{name}.registry" for name in ("data", "derived", "engine", "models"))})


def code_digest(entries: Iterable[str]) -> str:
    """The digest of `entries` (`<module>` or `<module>:<function>`) and of all modules of this package behind them."""
    modules = {module: _source_digest(_source(module)) for module in sorted(modules_behind(entries))}
    return digest({"entries": sorted(entries), "modules": modules})


def modules_behind(entries: Iterable[str]) -> set[str]:
    """The names of the package's modules that `entries` import, at any depth and anywhere in a module's text."""
    seen: set[str] = set()
    waiting = [entry.partition(":")[0] for entry in entries]
    while waiting:
        module = waiting.pop()
        if module in seen or module in NAME_TABLES:
            continue
        seen.add(module)
        waiting += _imports(module)
    return seen


def forget_sources() -> None:
    """Read every module from disk again, for a job that asks whether its code was edited while it ran."""
    for cached in (_path, _source):
        cached.cache_clear()


@cache
def _path(module: str) -> Path | None:
    folder = ROOT.joinpath(*module.split(".")[1:])
    for path in (folder.with_suffix(".py"), folder / "__init__.py"):
        if path.is_file() and module.split(".")[0] == PACKAGE:
            return path
    return None


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """What stands below a node in a module's blocks; expressions, most of a tree, hold no imports and no docstrings."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, block, ()):
            if not _is_type_checking(child):
                yield child
                yield from _statements(child)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in (tree, *_statements(tree)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            match node.body[0]:
                case ast.Expr(value=ast.Constant(value=str())):
                    node.body = node.body[1:] or [ast.Pass()]
    return tree


@cache
def _source(module: str) -> str:
    path = _path(module)
    assert path is not None, f"{module} is not a module of {PACKAGE}"
    return path.read_text(encoding="utf-8")


# What follows depends on a text alone, so that reading a module again costs no parsing if nobody edited it.


@cache
def _tree(source: str) -> ast.Module:
    return _without_docstrings(ast.parse(source))


@cache
def _source_digest(source: str) -> str:
    return hashlib.sha256(ast.unparse(_tree(source)).encode()).hexdigest()


@cache
def _imported(source: str, package: str) -> tuple[str, ...]:
    """The names that a module of this package imports, and those that may be modules: all that it takes from one."""
    names: list[str] = []
    for node in _statements(_tree(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package) if node.level else str(node.module)
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(names)


def _imports(module: str) -> list[str]:
    path = _path(module)
    above = module.rpartition(".")[0]
    package = module if path is not None and path.name == "__init__.py" else above
    return [name for name in (above, *_imported(_source(module), package)) if _path(name) is not None]
