"""What the docstrings below the fields of a dataclass say."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from itertools import pairwise
from textwrap import dedent


def read_field_docs(kind: type) -> dict[str, str]:
    """The docstring below each field of a dataclass, on one line; also below the fields that it inherits."""
    found = {}
    for base in filter(dataclasses.is_dataclass, reversed(kind.__mro__)):
        tree = ast.parse(dedent(inspect.getsource(base)))
        assert isinstance(tree.body[0], ast.ClassDef)
        for statement, following in pairwise(tree.body[0].body):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found
