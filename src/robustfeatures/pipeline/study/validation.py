"""Convert the values of a YAML file to dataclasses. Error messages are one line that names file and field."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from robustfeatures.errors import UserError, count_things, suggest
from robustfeatures.pipeline.plan.canonical import to_json

T = TypeVar("T")
# What YAML calls the values that pydantic names by their kinds in JSON.
KINDS = {
    "dataclass_type": "should be a mapping, `name: value`",
    "dict_type": "should be a mapping, `name: value`",
    "mapping_type": "should be a mapping, `name: value`",
    "model_attributes_type": "should be a mapping, `name: value`",
    "list_type": "should be a list, `[value, value]`",
    "tuple_type": "should be a list, `[value, value]`",
}
UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")


def validate(kind: type[T], value: Any, prefix: str = "") -> T:
    """Convert `value` (from YAML) to the dataclass `kind`. Messages begin with `prefix` and the name of the field.

    Raises:
        UserError: a field is unknown, missing, of the wrong type or out of range.
    """
    if not isinstance(value, dict):
        raise UserError(f"{prefix}the file must hold named fields")
    # Strict validation accepts lists as tuples only from JSON. YAML's dates become text.
    text = json.dumps(to_json(value), default=str)
    try:
        found: T = find_adapter(kind).validate_json(text)  # type: ignore[arg-type]  # every class is hashable
    except ValidationError as error:
        # A misspelt field may also be a missing one. The message names the misspelling.
        first = min(error.errors(), key=lambda details: details["type"] not in UNKNOWN)
        raise UserError(f"{prefix}{_message(first, kind)}") from error
    return found


@cache
def find_adapter(kind: Any) -> TypeAdapter[Any]:
    """Pydantic's adapter of a class. Cached, because making one takes longer than using it."""
    return TypeAdapter(kind)


def _message(error: Mapping[str, Any], kind: type) -> str:
    if error["type"] == "json_invalid":
        return "a value is nested too deeply, or is not UTF-8 text"
    field, known = _locate_field(kind, error["loc"])
    if error["type"] in UNKNOWN:
        return f"{field}: unknown field{suggest(str(error['loc'][-1]), known) or ' (no fields here)'}"
    if error["type"] == "union_tag_not_found":
        return f"{field}.kind: the field is missing"
    if error["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return f"{field}: the field is missing"
    given = error["input"]
    # A validator of ours has the whole message, without pydantic's "Value error".
    message = str(error["ctx"]["error"]) if error["type"] == "value_error" else error["msg"]
    message = KINDS.get(error["type"]) or message[0].lower() + message[1:]
    if error["type"] == "too_short":
        message = f"should have at least {count_things(error['ctx']['min_length'], 'item')}"
    if error["type"] == "string_pattern_mismatch" and error["loc"][-1] == "[key]":
        field = ".".join(map(str, error["loc"][:-2]))
        message = "a name has letters, digits, _, . and - alone, and begins with a letter or a digit"
    if error["type"] == "union_tag_invalid":
        tags = re.findall(r"'([^']+)'", str(error["ctx"]["expected_tags"]))
        return f"{field}.kind: {error['ctx']['tag']!r} is unknown{suggest(str(error['ctx']['tag']), tags)}"
    if error["type"] == "literal_error":
        values = str(error["ctx"]["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
        if str(given) in values:
            written = "without quotes" if isinstance(given, str) else "in quotes"
            return f"{field}: {given!r} is another kind of value; write {given} {written}"
        return f"{field}: {given!r} is unknown{suggest(str(given), values)}"
    return f"{field}: {message}" + ("" if isinstance(given, (dict, list)) else f", not {given!r}")


def _locate_field(kind: Any, location: Iterable[str | int]) -> tuple[str, list[str]]:
    """The field of the file at an error's location in a `kind`, and the allowed names of its last part.

    pydantic's location also has the alternative of a union that it tried, which is not a field of the file.
    """
    parts: list[str] = []
    known: list[str] = []
    for part in location:
        members = _union_members(kind)
        if len(members) > 1:
            kind = next((member for member in members if part in _union_labels(member)), None)
            continue
        parts.append(str(part))
        known, kind = _field_type(members[0], part)
    return ".".join(parts), known


def _union_members(kind: Any) -> list[Any]:
    """The alternatives of a union without None, or the type itself."""
    if get_origin(kind) in (Union, UnionType):
        return [member for member in get_args(kind) if member is not NoneType]
    return [kind]


def _union_labels(kind: Any) -> tuple[str, ...]:
    """The names that pydantic gives to a class in a union: the values of its field `kind`."""
    return get_args(get_type_hints(kind).get("kind")) if dataclasses.is_dataclass(kind) else ()


def _field_type(kind: Any, part: str | int) -> tuple[list[str], Any]:
    """The field names of a `kind`, and the type of its field or item `part`; None if any type is allowed."""
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        return names, get_type_hints(kind)[str(part)] if part in names else None
    origin, held = get_origin(kind), get_args(kind)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return [], held[1]
    return [], held[0] if origin is tuple else None
