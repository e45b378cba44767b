"""The identity of a result: its stage, its parameters, and the code and libraries of the science that makes it.

The digest of a recipe is that of its identity and of the digests of its inputs; the key of a payload is that of the
same identity and of the contents of the inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions, version
from typing import Any

from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan import reach
from robustfeatures.pipeline.plan.canonical import digest, to_json

NORMS = "robustfeatures.attacks"


def make_identity(stage: str, version: int, parameters: Any, entries: Iterable[str]) -> dict[str, Any]:
    """Everything that a result depends on except its inputs, as JSON values.

    `entries` are the modules that make it, `<module>` or `<module>:<function>`. `version` is raised by hand when a
    stage writes the same numbers in another form.

    Raises:
        UserError: a library that these modules import is not installed.
    """
    return {
        "stage": stage,
        "version": version,
        "parameters": drop_unset(to_json(parameters)),
        **identify_science(tuple(sorted(entries))),
    }


def identity_digest(identity: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """The digest of an identity and its inputs. `inputs` maps roles to digests of recipes or of contents."""
    return digest({**identity, "inputs": dict(inputs)})


@cache
def identify_science(entries: tuple[str, ...], *, of_view: bool = False) -> dict[str, Any]:
    """The digest of the code that `entries` reach, and the versions (major.minor) of the libraries that it imports.

    That of a view (a table, a figure, claims or a page) holds the words of settings too.

    Raises:
        UserError: one of these libraries is not installed.
    """
    found = reach.reach(entries, of_view=of_view)
    libraries = dict(sorted(one for library in found.libraries for one in _versions(library)))
    # Where the user's own file lies is not part of the identity.
    named = sorted(reach.own_file_name(entry) or entry for entry in entries)
    return {"code": digest({"entries": named, "modules": found.modules}), "libraries": libraries}


def clear_caches() -> None:
    """Clear the caches, so that a job can check whether modules or versions changed while it ran."""
    reach.clear_caches()
    identify_science.cache_clear()
    _versions.cache_clear()


def drop_unset(parameters: Any) -> Any:
    """Parameters, as JSON values, without options that are off (None, False, empty) and without paths of known files.

    A new option that is off therefore changes no identity. A file with a `sha256` is identified by it, not by its
    `path` or `weights`.
    """
    if isinstance(parameters, dict):
        is_known_file = parameters.get("sha256") is not None
        return {
            name: drop_unset(value)
            for name, value in parameters.items()
            if not _is_off(value) and not (is_known_file and name in ("path", "weights"))
        }
    if isinstance(parameters, list):
        return [drop_unset(value) for value in parameters]
    return parameters


def norm_entries(parameters: Any) -> Iterator[str]:
    """The modules of all norms that the parameters (JSON values) name, at any depth."""
    if isinstance(parameters, dict):
        norm = parameters.get("norm")
        # "norm" may also be the name of a class of images.
        if isinstance(norm, str) and reach.is_module(module := f"{NORMS}.{norm}"):
            yield module
        for value in parameters.values():
            yield from norm_entries(value)
    elif isinstance(parameters, list):
        for value in parameters:
            yield from norm_entries(value)


def differences(now: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    """One line for each difference between two identities of one stage."""
    for name in ("version", "code"):
        if now.get(name) != before.get(name):
            yield f"{name}: {before.get(name)} -> {now.get(name)}"
    for field in ("libraries", "parameters"):
        new, old = dict(flatten(now.get(field, {}))), dict(flatten(before.get(field, {})))
        for name in sorted(new.keys() | old.keys()):
            if new.get(name) != old.get(name):
                yield f"{name}: {old.get(name)} -> {new.get(name)}"


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested JSON values as (dotted name, value) pairs."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from flatten(item, f"{prefix}.{name}" if prefix else name)
    elif isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        for number, item in enumerate(value):
            yield from flatten(item, f"{prefix}.{number}")
    else:
        yield prefix, value


def _is_off(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, (list, dict)) and not value)


@cache
def _versions(library: str) -> tuple[tuple[str, str], ...]:
    """The distributions that contain a library, each with its version (major.minor)."""
    found = _distributions(library)
    if not found:
        raise UserError(f"{library}: this Python package is not installed, and the study's code imports it")
    return tuple((name, ".".join(version(name).split(".")[:2])) for name in found)


def _distributions(library: str) -> list[str]:
    """The names of the distributions that contain a top-level package or module.

    `importlib.metadata.packages_distributions` finds the same, but parses every file list: that takes 0.3 s.
    """
    same_name = []
    with suppress(PackageNotFoundError):
        # Most are called like their package; sklearn and PIL are not. There is an empty distribution called sklearn.
        same_name = [distribution(library)]
    if any(_holds(one, f"{library}/", f"{library}.py,") for one in same_name):
        return [one.metadata["Name"] for one in same_name]
    found = [one for one in distributions() if _holds(one, f"{library}/__init__.py,", f"{library}.py,")]
    # A distribution that is installed from its sources lists none of its files.
    return sorted({one.metadata["Name"] for one in found or same_name})


def _holds(found: Distribution, *beginnings: str) -> bool:
    """Whether the list of a distribution's files has a line with one of these beginnings."""
    lines = f"\n{found.read_text('RECORD')}"
    return any(f"\n{beginning}" in lines for beginning in beginnings)
