"""From the values of a YAML file to dataclasses, with messages of one line that name file and field."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from robustfeatures.errors import UserError, suggest
from robustfeatures.pipeline.plan.canonical import plain

T = TypeVar("T")
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
    field, known = _located(kind, error["loc"])
    if error["type"] in UNKNOWN:
        return f"{field}: unknown field{suggest(str(error['loc'][-1]), known) or ' (no fields here)'}"
    if error["type"] == "union_tag_not_found":
        return f"{field}.kind: the field is missing"
    if error["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return f"{field}: the field is missing"
    message = error["msg"][0].lower() + error["msg"][1:]
    given = error["input"]
    if error["type"] == "union_tag_invalid":
        tags = re.findall(r"'([^']+)'", str(error["ctx"]["expected_tags"]))
        return f"{field}.kind: {error['ctx']['tag']!r} is unknown{suggest(str(error['ctx']['tag']), tags)}"
    if error["type"] == "literal_error":
        values = str(error["ctx"]["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
        return f"{field}: {given!r} is unknown{suggest(str(given), values)}"
    return f"{field}: {message}" + ("" if isinstance(given, (dict, list)) else f", not {given!r}")


def _located(kind: Any, location: Iterable[str | int]) -> tuple[str, list[str]]:
    """The field of the file that the location of an error in a `kind` means, and the names that its last part may have.

    pydantic also names the alternative of a union that it tried, which is no field of the file.
    """
    parts: list[str] = []
    known: list[str] = []
    for part in location:
        members = _members(kind)
        if len(members) > 1:
            kind = next((member for member in members if part in _labels(member)), None)
            continue
        parts.append(str(part))
        known, kind = _below(members[0], part)
    return ".".join(parts), known


def _members(kind: Any) -> list[Any]:
    """The alternatives of a union; what may be left out is none."""
    if get_origin(kind) in (Union, UnionType):
        return [member for member in get_args(kind) if member is not NoneType]
    return [kind]


def _labels(kind: Any) -> tuple[str, ...]:
    """What pydantic may call a class among several: the values of its field `kind`."""
    return get_args(get_type_hints(kind).get("kind")) if dataclasses.is_dataclass(kind) else ()


def _below(kind: Any, part: str | int) -> tuple[list[str], Any]:
    """The names of the fields of a `kind`, and the type of what it holds under one of them; None where that is open."""
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        return names, get_type_hints(kind)[str(part)] if part in names else None
    origin, held = get_origin(kind), get_args(kind)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return [], held[1]
    return [], held[0] if origin is tuple else None
