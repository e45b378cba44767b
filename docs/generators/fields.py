"""Tables of fields, for people, from a JSON schema: name, type, default, and what the field is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from docs.generators.schemas import DEFINITIONS, Schema
from robustfeatures.engine.settings import LARGE

# One value of a type, and several.
KINDS = {
    "integer": ("whole number", "whole numbers"),
    "number": ("number", "numbers"),
    "string": ("text", "texts"),
    "boolean": ("`true` or `false`", "`true` or `false`"),
}
LIMITS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "up to", "exclusiveMaximum": "below"}
# The pattern of a name of the study's own.
NAME = "^[A-Za-z0-9][A-Za-z0-9_.-]*$"


@dataclass(frozen=True)
class Tables:
    """The tables of classes, which link to each other; `elsewhere` has the page of a class that is not on this one."""

    definitions: Mapping[str, Schema]
    elsewhere: Mapping[str, str]

    def section(self, name: str, level: int) -> Iterator[str]:
        """The lines of one class: heading, what it is, and its fields."""
        schema = self.definitions[name]
        yield from ("#" * level + f" {self.title(name)}", "", schema["description"], "")
        yield from self.table(schema)

    def table(self, schema: Schema) -> Iterator[str]:
        """The lines of the table of fields, without the field `kind`, which is in the heading; none without fields."""
        fields = {field: one for field, one in schema.get("properties", {}).items() if field != "kind"}
        if not fields:
            return
        yield from ("| field | type | default | what it is |", "|---|---|---|---|")
        for field, one in fields.items():
            default = "required" if field in schema.get("required", ()) else show_default(one)
            yield f"| `{field}` | {self.type(one)} | {default} | {show_cell(one.get('description', ''))} |"
        yield ""

    def title(self, name: str) -> str:
        """What a heading calls a class: its kind in the file, or its name in words."""
        schema = self.definitions[name]
        kind = schema.get("properties", {}).get("kind", {}).get("const")
        return f"kind: {kind}" if kind else re.sub(r"(?<=[a-z])(?=[A-Z])", " ", schema["title"]).capitalize()

    def link(self, name: str) -> str:
        """A link to the section of a class."""
        title = self.title(name)
        anchor = re.sub(r"[^a-z0-9-]", "", title.lower().replace(" ", "-"))
        return f"[{title.removeprefix('kind: ')}]({self.elsewhere.get(name, '')}#{anchor})"

    def type(self, schema: Schema, *, several: bool = False) -> str:
        """The type of a value in words, or that of several values."""
        match schema:
            case {"$ref": reference}:
                return self.link(reference.removeprefix(DEFINITIONS))
            case {"anyOf": choices} | {"oneOf": choices}:
                return " or ".join(self.type(one, several=several) for one in choices if one.get("type") != "null")
            case {"const": value}:
                return f"`{value}`"
            case {"enum": values}:
                return ", ".join(f"`{value}`" for value in values)
            case {"type": "array", "prefixItems": items}:
                return f"list of {self.type(items[0], several=True)} (exactly {len(items)})"
            case {"type": "array", "items": items}:
                return f"list of {self.type(items, several=True)}{_count(schema)}"
            case {"type": "object", "additionalProperties": dict(values)}:
                return f"{self.type(values)}, by name"
            case {"type": "object"}:
                return "mapping"
            case {"type": "string", "pattern": pattern} if pattern == NAME:
                return "names" if several else "name"
            case {"type": kind}:
                # The page of the study says once that numbers are below LARGE.
                limits = (
                    f" {word} {schema[limit]:g}"
                    for limit, word in LIMITS.items()
                    if schema.get(limit) not in (None, LARGE)
                )
                return KINDS[kind][several] + ",".join(limits)
        return "any values" if several else "any value"

    def named(self, schema: Schema) -> list[str]:
        """The classes that a schema names, each followed by those that it names itself."""
        found: list[str] = []
        self._add_named(schema, found)
        return found

    def _add_named(self, schema: Schema, found: list[str]) -> None:
        for name in re.findall(rf'"\$ref": "{re.escape(DEFINITIONS)}([^"]+)"', json.dumps(schema)):
            if name not in found:
                found.append(name)
                self._add_named(self.definitions[name], found)


def show_cell(text: str) -> str:
    """Text within a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def show_default(schema: Schema) -> str:
    """The default as a study file would say it."""
    default = schema.get("default")
    if default in (None, [], {}):
        return "none"
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _count(schema: Schema) -> str:
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    if most is not None:
        return f" (exactly {most})" if least == most else f" (at most {most})"
    return f" (at least {least})" if least else ""
