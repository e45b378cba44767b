"""From the values of a YAML file to dataclasses, with messages of one line that name file and field."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from robustfeatures.errors import UserError, suggestion
from robustfeatures.recipes.canonical import plain

T = TypeVar("T")
ALTERNATIVES = (
    "inversion",
    "targeted-attack",
    "pgd",
    "cw-l2",
    "autoattack",
    "noise",
    "literal['random','next']",
    "constrained-int",
    "int",
)
UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")


def validated(kind: type[T], value: Any, where: str) -> T:
    """`value` (from YAML) as a `kind`; `where` names the file in messages.

    Raises:
        UserError: a field is unknown, missing, of the wrong type or out of range.
    """
    if not isinstance(value, dict):
        raise UserError(f"{where}: the file must hold named fields")
    # Through JSON, because strict validation takes lists for tuples only there; YAML also knows dates, here text.
    text = json.dumps(plain(value), default=str)
    try:
        found: T = _adapter(kind).validate_json(text)  # type: ignore[arg-type]  # every class is hashable
    except ValidationError as error:
        # A misspelt field is also a missing one; the misspelling is what the user wants to hear of.
        first = min(error.errors(), key=lambda details: details["type"] not in UNKNOWN)
        raise UserError(f"{where}: {_message(first, kind)}") from error
    return found


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Made once for each type: it takes longer than what it checks, and a grid checks many trainings."""
    return TypeAdapter(kind)


def _message(error: Mapping[str, Any], kind: type) -> str:
    # pydantic names the alternative of a union that it tried, which is no field of the file.
    field = ".".join(str(part) for part in error["loc"] if part not in ALTERNATIVES)
    if error["type"] in UNKNOWN:
        return f"{field}: unknown field{suggestion(str(error['loc'][-1]), _field_names(kind))}"
    if error["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return f"{field}: the field is missing"
    message = error["msg"][0].lower() + error["msg"][1:]
    given = error["input"]
    if error["type"] == "union_tag_invalid":
        known = re.findall(r"'([^']+)'", str(error["ctx"]["expected_tags"]))
        return f"{field}.kind: {error['ctx']['tag']!r} is unknown{suggestion(str(error['ctx']['tag']), known)}"
    if error["type"] == "literal_error":
        known = str(error["ctx"]["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
        return f"{field}: {given!r} is unknown{suggestion(str(given), known)}"
    return f"{field}: {message}" + ("" if isinstance(given, (dict, list)) else f", not {given!r}")


def _field_names(kind: Any) -> set[str]:
    """The names of all fields of a dataclass and of the dataclasses in it, which may hold one another."""
    names: set[str] = set()
    seen: list[Any] = []
    waiting = [kind]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.append(current)
        if dataclasses.is_dataclass(current):
            hints = get_type_hints(current)
            names |= hints.keys()
            waiting += hints.values()
        waiting += [argument for argument in get_args(current) if not isinstance(argument, str)]
    return names
