"""Shared parts of the registries of networks, data sources, attacks and methods; this module imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import partial
from importlib import import_module
from typing import Any, Self, TypeVar, get_args, get_type_hints

from robustfeatures.errors import UserError, suggest


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One network, data source, attack or method, under the name in study files, with all facts that planning needs.

    Raises:
        UserError: a field is missing; the message names the entry and the field.
    """

    name: str

    def __new__(cls, **values: object) -> Self:
        required = [field.name for field in fields(cls) if field.default is field.default_factory is MISSING]
        for field in required:
            if field not in values:
                raise UserError(f"{cls.__name__} {values.get('name', '')!r}: {field} is missing")
        return super().__new__(cls)


E = TypeVar("E", bound=Entry)


def index_by_name(*entries: E) -> dict[str, E]:
    """The entries of a registry by name.

    Raises:
        UserError: two entries have the same name.
    """
    found: dict[str, E] = {}
    for entry in entries:
        if entry.name in found:
            raise UserError(f"{type(entry).__name__} {entry.name!r}: the name is taken; choose another")
        found[entry.name] = entry
    return found


def find_entry(entries: Mapping[str, E], name: str, field: str) -> E:
    """The entry called `name`; `field` is the field of the study that names it.

    Raises:
        UserError: there is no such entry.
    """
    if name not in entries:
        raise UserError(f"{field}: {name!r} is unknown{suggest(name, entries)}")
    return entries[name]


def check_kinds(entries: Mapping[str, Entry], settings: Mapping[str, type], union: object) -> None:
    """Check that a union has exactly the settings of all entries, each with the entry's name as its `kind`.

    `settings` has the settings of each entry by name. Study files are validated with `union`, discriminated by `kind`.

    Raises:
        UserError: the settings of an entry are not in the union, or a member of the union has no entry.
    """
    members = get_args(get_args(union)[0])
    kinds = {get_args(get_type_hints(member)["kind"])[0]: member for member in members}
    for name, entry in entries.items():
        if kinds.get(name) is not settings[name]:
            raise UserError(
                f"{type(entry).__name__} {name!r}: settings: {settings[name].__name__} is not in the union of settings "
                f"with kind: {name!r}"
            )
    for name in kinds.keys() - entries.keys():
        raise UserError(f"{kinds[name].__name__}: kind: {name!r} has no entry in the registry")


def load_attribute(name: str) -> Any:
    """Import `module:attribute` and return the attribute.

    For `module:function:argument` it is the function with this first argument, a text, already given.

    Raises:
        UserError: there is no such module, or it has no such attribute.
    """
    module, _, rest = name.partition(":")
    attribute, _, argument = rest.partition(":")
    try:
        imported = import_module(module)
    except ModuleNotFoundError as error:
        # A module that exists but fails to import another one is a different error.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise UserError(f"{name}: there is no module {error.name}") from None
    try:
        found = getattr(imported, attribute)
    except AttributeError:
        raise UserError(f"{name}: {module} has no {attribute!r}") from None
    return partial(found, argument) if argument else found
