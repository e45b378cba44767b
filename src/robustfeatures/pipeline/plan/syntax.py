"""The part of a module's syntax that can change numbers, without docstrings, error messages, logs and type imports."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
# Imports from these modules only serve messages.
MESSAGE_MODULES = frozenset({"logging", "robustfeatures.errors"})
BLOCKS = ("body", "finalbody")


def strip_wording(tree: ast.Module) -> ast.Module:
    """The tree without docstrings, arguments and causes of `raise`, log statements, and imports for type checkers."""
    loggers = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and _gets_logger(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    reduced: ast.Module = _WordingStripper({"logging", *loggers}).visit(tree)
    return reduced


def describe_tree(node: object) -> str:
    """A syntax tree as text that is the same under every version of Python, unlike that of `ast.unparse`.

    Empty fields are left out, because later versions add some.
    """
    if isinstance(node, list):
        return f"[{','.join(map(describe_tree, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []) and name != "kind")
    return f"{type(node).__name__}({','.join(f'{name}={describe_tree(value)}' for name, value in fields)})"


def is_type_checking(node: ast.If) -> bool:
    """Whether only type checkers run the body of this `if`."""
    match node.test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
    return False


class _WordingStripper(ast.NodeTransformer):
    def __init__(self, loggers: Iterable[str]) -> None:
        self.loggers = frozenset(loggers)

    def visit(self, node: ast.AST) -> Any:
        # Expressions hold no statements; they are most of a tree.
        return node if isinstance(node, ast.expr) else super().visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        blocks = [name for name in BLOCKS if isinstance(getattr(node, name, None), list) and getattr(node, name)]
        super().generic_visit(node)
        for name in blocks:
            if not getattr(node, name):
                setattr(node, name, [ast.Pass()])
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        match node.value:
            # A docstring, or another string that is a whole statement.
            case ast.Constant(value=str()):
                return None
            case ast.Call(func=ast.Attribute(value=logger, attr=level)) if level in LEVELS and self._is_logger(logger):
                return None
        return self.generic_visit(node)

    def visit_Pass(self, node: ast.Pass) -> None:
        """Remove `pass`; `generic_visit` adds one to a block that is empty at the end."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        return None if _gets_logger(node.value) else self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        node.cause = None
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if not is_type_checking(node):
            return self.generic_visit(node)
        # The `else` branch runs.
        otherwise = ast.Module(node.orelse, [])
        super().generic_visit(otherwise)
        return otherwise.body

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        node.names = [one for one in node.names if one.name not in MESSAGE_MODULES]
        return node if node.names else None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if node.module in MESSAGE_MODULES else node

    def _is_logger(self, node: ast.expr) -> bool:
        return (isinstance(node, ast.Name) and node.id in self.loggers) or _gets_logger(node)


def _gets_logger(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="logging"), attr="getLogger")):
            return True
        case ast.Call(func=ast.Name(id="getLogger")):
            return True
    return False
