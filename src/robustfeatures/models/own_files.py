"""Networks in the user's own Python files, by the name `<file>.py:<function>`; this module imports no torch.

A study names a file beside it. Recipes, labels and saved networks have the name alone, so that a result does not depend
on where the file lies. `declare_file` says where it lies: the reader of a study does so, and each job again.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

from robustfeatures.errors import UserError, suggest

NAME = re.compile(r"(?P<file>[^:]+\.py):(?P<function>[A-Za-z_]\w*)")

_declared: dict[str, Path] = {}


class OwnFactory(NamedTuple):
    """A file, and the function in it that makes a network."""

    file: str
    function: str


def parse_own(name: str) -> OwnFactory | None:
    """The file and the function of a name such as `my_networks.py:convnet`; None for another kind of name."""
    found = NAME.fullmatch(name)
    return None if found is None else OwnFactory(found["file"], found["function"])


def declare_file(path: Path) -> None:
    """Say where the file of this name lies; a later declaration replaces an earlier one."""
    _declared[path.name] = path.resolve()


def find_file(file: str) -> Path:
    """Where a declared file lies.

    Raises:
        UserError: it was not declared.
    """
    if file not in _declared:
        raise UserError(f"architecture: {file} is not known here; give architecture='<folder>/{file}:<function>'")
    return _declared[file]


def check_own(own: OwnFactory, folder: Path, where: str) -> None:
    """Check and declare the file in `folder`; `where` is the field that names it.

    Raises:
        UserError: the file is not directly in the folder, does not exist, is not Python, or has no such function.
    """
    path = folder / own.file
    if Path(own.file).name != own.file:
        raise UserError(f"{where}: {own.file} must lie beside the study, so give the name alone")
    try:
        tree = ast.parse(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{where}: {path} does not exist") from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise UserError(f"{where}: {path}: line {line or 1}: {getattr(error, 'msg', error)}") from None
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    if own.function not in functions:
        raise UserError(f"{where}: {path} has no function {own.function!r}{suggest(own.function, functions)}")
    declare_file(path)
