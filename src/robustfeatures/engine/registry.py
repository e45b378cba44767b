"""What the registries of networks, data sources, attacks and methods have in common; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from importlib import import_module
from typing import Any, Self, TypeVar, get_args, get_type_hints

from robustfeatures.errors import UserError, suggest


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What planning knows of one network, data source, attack or method, by the name that study files use.

    Raises:
        UserError: a field is missing; the message names the entry and the field.
    """

    name: str

    def __new__(cls, **given: object) -> Self:
        needed = [field.name for field in fields(cls) if field.default is field.default_factory is MISSING]
        for field in needed:
            if field not in given:
                raise UserError(f"{cls.__name__} {given.get('name', '')!r}: {field} is missing")
        return super().__new__(cls)


E = TypeVar("E", bound=Entry)


def index_by_name(*entries: E) -> dict[str, E]:
    """The entries of a registry by name.

    Raises:
        UserError: two entries have one name.
    """
    found: dict[str, E] = {}
    for entry in entries:
        if entry.name in found:
            raise UserError(f"{type(entry).__name__} {entry.name!r}: the name is taken; choose another")
        found[entry.name] = entry
    return found


def find_entry(entries: Mapping[str, E], name: str, field: str) -> E:
    """The entry that the value `name` of a study's `field` names.

    Raises:
        UserError: there is none.
    """
    if name not in entries:
        raise UserError(f"{field}: {name!r} is unknown{suggest(name, entries)}")
    return entries[name]


def check_kinds(entries: Mapping[str, Entry], settings: Mapping[str, type], union: object) -> None:
    """Check that a union of settings holds the settings of every entry under the entry's name, and no others.

    `settings` are those of the entries, by name; `union` is what study files are validated by, told apart by `kind`.

    Raises:
        UserError: an entry is missing, or not in the union.
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
    """What `module:attribute` names, imported only now.

    Raises:
        UserError: there is no such module, or nothing of that name in it.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        # What the module itself cannot import is another error.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise UserError(f"{name}: there is no module {error.name}") from None
    except AttributeError:
        raise UserError(f"{name}: {module} has no {attribute!r}") from None
