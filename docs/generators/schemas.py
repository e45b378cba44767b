"""JSON schemas of study files and of config.yaml, with which editors check and complete them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from robustfeatures.experiments.catalogue import experiment_modules, load_experiment
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.extends import ALL_OTHERS
from robustfeatures.pipeline.study.study import Study
from robustfeatures.tools.field_docs import read_field_docs

Schema = dict[str, Any]
DEFINITIONS = "#/$defs/"
# What a file with `extends` may change of a definition.
CHANGED = "-changed"
# The reader of studies takes 8/255 for a number; to an editor it is text.
FRACTION = {"type": "string", "pattern": r"^\d+/\d+$"}
SEEDS = "Which of the study's seeds the experiment uses; by default all."
EXTENDS = (
    'A study in the same folder. This file then has only what it changes; null removes a value, "*": null all others.'
)


class _Documented(GenerateJsonSchema):
    """A schema whose descriptions are the docstrings of classes and fields."""

    def dataclass_schema(self, schema: Any) -> Schema:
        found = super().dataclass_schema(schema)
        found["description"] = " ".join((schema["cls"].__doc__ or "").split())
        for name, text in read_field_docs(schema["cls"]).items():
            found["properties"][name]["description"] = text
        return found

    def dict_schema(self, schema: Any) -> Schema:
        """A name that does not match the pattern is an error."""
        found = super().dict_schema(schema)
        for pattern, values in found.pop("patternProperties", {}).items():
            found |= {"propertyNames": {"pattern": pattern, **found.get("propertyNames", {})}}
            found["additionalProperties"] = values
        return found

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Editors show the name of a field anyway."""
        return False


def find_identifiers() -> list[str]:
    """The ids of all experiments, A9 before A10."""
    return sorted(experiment_modules(), key=lambda identifier: (identifier[0], int(identifier[1:])))


@cache
def make_schemas() -> tuple[Schema, dict[str, str]]:
    """The definitions of all classes of a study file, and the name of the one of each experiment's settings."""
    experiments = [load_experiment(identifier) for identifier in find_identifiers()]
    kinds = [("Study", Study), *((experiment.id, experiment.settings) for experiment in experiments)]
    adapters: list[Any] = [(key, "validation", TypeAdapter(kind)) for key, kind in kinds]
    found, definitions = TypeAdapter.json_schemas(adapters, schema_generator=_Documented)
    names = {str(key): schema["$ref"].removeprefix(DEFINITIONS) for (key, _), schema in found.items()}
    return definitions["$defs"], names


def make_study_schema() -> Schema:
    """The schema of a study file, whole or with `extends`."""
    definitions, names = deepcopy(make_schemas())
    study = definitions[names.pop("Study")]
    for identifier, name in names.items():
        title = f"{identifier}: {load_experiment(identifier).title}"
        seeds = {**study["properties"]["seeds"], "description": SEEDS}
        definitions[name] |= {"title": title, "properties": {**definitions[name]["properties"], "seeds": seeds}}
    settings = {identifier: {"$ref": DEFINITIONS + name} for identifier, name in names.items()}
    study["properties"]["experiments"] |= {"properties": settings, "additionalProperties": False}
    definitions = _allow_fractions(definitions)
    changed = _find_changed(definitions)
    changed["Study" + CHANGED]["properties"]["extends"] = {"type": "string", "description": EXTENDS}
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": "Study",
        "if": {"required": ["extends"]},
        "then": {"$ref": f"{DEFINITIONS}Study{CHANGED}"},
        "else": {"$ref": f"{DEFINITIONS}Study"},
        "$defs": definitions | changed,
    }


def make_config_schema() -> Schema:
    """The schema of config.yaml."""
    found = TypeAdapter(Config).json_schema(schema_generator=_Documented)
    return {"$schema": GenerateJsonSchema.schema_dialect, **found}


def to_text(schema: Schema) -> str:
    """A schema as its file has it."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _allow_fractions(value: Any) -> Any:
    """The same schema, in which 8/255 stands wherever a number stands."""
    if isinstance(value, list):
        return [_allow_fractions(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "number":
        outside = {name: value[name] for name in ("description", "default") if name in value}
        number = {name: item for name, item in value.items() if name not in outside}
        return {**outside, "anyOf": [number, FRACTION]}
    return {name: _allow_fractions(item) for name, item in value.items()}


def _find_changed(definitions: Mapping[str, Schema]) -> dict[str, Schema]:
    """What a study may change of its own definition, and of all that this one names."""
    found: dict[str, Schema] = {}
    waiting = ["Study"]
    while waiting:
        name = waiting.pop()
        if name + CHANGED not in found:
            found[name + CHANGED] = _allow_changes(definitions[name], waiting)
    return found


def _allow_changes(schema: Schema, named: list[str]) -> Schema:
    """The same schema without required fields and with null for any value and for `*`; lists are replaced as a whole.

    The definitions that it names are added to `named`.
    """
    found = {
        name: item for name, item in schema.items() if name not in ("required", "oneOf", "discriminator", "default")
    }
    if "$ref" in schema:
        found["$ref"] += CHANGED
        named.append(schema["$ref"].removeprefix(DEFINITIONS))
    for several in schema.keys() & {"oneOf", "anyOf"}:
        found["anyOf"] = [_allow_changes(one, named) for one in schema[several]]
    if "properties" in schema:
        found["properties"] = {
            name: _allow_null(_allow_changes(one, named)) for name, one in schema["properties"].items()
        }
    if schema.get("type") == "object":
        found["properties"] = {**found.get("properties", {}), ALL_OTHERS: {"type": "null"}}
    if "propertyNames" in schema:
        found["propertyNames"] = {"anyOf": [schema["propertyNames"], {"const": ALL_OTHERS}]}
    if isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = _allow_null(_allow_changes(schema["additionalProperties"], named))
    return found


def _allow_null(schema: Schema) -> Schema:
    outside = {name: schema[name] for name in schema.keys() & {"description"}}
    inside = {name: item for name, item in schema.items() if name not in outside}
    return {**outside, "anyOf": [inside, {"type": "null"}]}
