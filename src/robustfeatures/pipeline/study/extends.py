"""A study that is another study with a few values changed.

`extends: digits` names a study in the same folder. The file then holds only what it changes:

- Fields of both files are merged by name, at every depth. A network with another `name` is new: it keeps no field, such
  as the width, of the network in its place.
- A list, a number or a text replaces what the extended study has there. A list is never merged.
- `null` removes what the extended study has there. `"*": null` removes all that this file does not name beside it.

The extended study may itself extend another one. YAML's anchors end with their file: who changes one training changes
none that was copied from it. The result is checked as a whole, as if it stood in one file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robustfeatures.errors import UserError, suggest
from robustfeatures.pipeline.study.yaml import read_yaml

ALL_OTHERS = "*"


@dataclass(frozen=True)
class StudyValues:
    """The values of a study, merged with those of the studies that it extends.

    `origins` has the file that a field is from, by the dotted name of the field (`training.standard`). A field that it
    lacks is from the file of the nearest field round it.
    """

    path: Path
    values: Any
    origins: Mapping[str, Path] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The file as it is written, then those that it extends; each below a line with its name if there are more."""
        files = list(dict.fromkeys([self.path, *self.origins.values()]))
        texts = {path.name: path.read_text(encoding="utf-8") for path in files}
        return "\n".join(f"# {name}\n{text}" if len(texts) > 1 else text for name, text in texts.items())

    def find_file(self, text: str) -> Path:
        """The file in which a field stands; `text` is the field or begins with it (`training.standard.epochs: ...`)."""
        found = [name for name in self.origins if text == name or text.startswith((f"{name}.", f"{name}:"))]
        return self.origins[max(found, key=len)] if found else self.path

    @contextmanager
    def errors_name_the_file(self) -> Iterator[None]:
        """Put the file in which the field stands before the message of a `UserError`, which begins with the field."""
        try:
            yield
        except UserError as error:
            file = self.find_file(str(error))
            # What the study changes may be what does not fit a field of the extended study.
            where = "" if file == self.path else f" (in {self.path.name}, which extends this file)"
            raise UserError(f"{file}: {error}{where}") from error


def read_values(path: Path) -> StudyValues:
    """Read a study's file, and merge its values into those of the study that it extends.

    Raises:
        UserError: a file cannot be read; the extended study is unknown, or extends this one; `null` removes nothing;
            or `*` has a value.
    """
    return _read(path, ())


def _read(path: Path, above: tuple[Path, ...]) -> StudyValues:
    """Read and merge; the studies `above` extend this one."""
    values = read_yaml(path)
    if not isinstance(values, dict) or "extends" not in values:
        names = values if isinstance(values, dict) else ()
        return StudyValues(path, values, {str(name): path for name in names})
    base = _read(_find_base(path, values.pop("extends"), (*above, path)), (*above, path))
    if not isinstance(base.values, dict):
        return base
    origins = dict(base.origins)
    return StudyValues(path, _merge(base.values, values, "", path, origins), origins)


def _find_base(path: Path, name: Any, above: tuple[Path, ...]) -> Path:
    """The file of the study that the study in `path` extends."""
    known = {file.stem: file for file in path.parent.glob("*.yaml")}
    if not isinstance(name, str) or name not in known:
        others = known.keys() - {path.stem}
        raise UserError(f"{path}: extends: {name!r} is unknown{suggest(str(name), others)}")
    if known[name] in above:
        circle = " -> ".join(file.stem for file in (*above[above.index(known[name]) :], known[name]))
        raise UserError(f"{path}: extends: the studies extend each other: {circle}")
    return known[name]


def _merge(
    base: Mapping[Any, Any], changes: Mapping[Any, Any], prefix: str, path: Path, origins: dict[str, Path]
) -> dict[Any, Any]:
    """The base with the changes of the file `path`, which becomes the origin of every changed field."""
    # YAML's aliases are one object in several places, so nothing is changed in place.
    merged = dict(base)
    for name, value in _expand_star(base, changes, prefix, path).items():
        place = f"{prefix}{name}"
        old = merged.get(name)
        if isinstance(old, dict) and isinstance(value, dict) and not _is_renamed(old, value):
            merged[name] = _merge(old, value, f"{place}.", path, origins)
            continue
        if value is None and name not in base:
            known = suggest(str(name), map(str, base))
            raise UserError(f"{path}: {place}: null removes a value, but the extended study has none{known}")
        for below in [known for known in origins if known.startswith(f"{place}.")]:
            del origins[below]
        origins[place] = path
        merged[name] = _drop_stars(value, f"{place}.", path)
        if value is None:
            del merged[name]
    return merged


def _expand_star(base: Mapping[Any, Any], changes: Mapping[Any, Any], prefix: str, path: Path) -> Mapping[Any, Any]:
    """The changes with `null` for each name of the base that they lack, in place of `*`."""
    if ALL_OTHERS not in changes:
        return changes
    if changes[ALL_OTHERS] is not None:
        raise UserError(f"{path}: {prefix}{ALL_OTHERS}: it must be null, which removes all other names")
    named = {name: value for name, value in changes.items() if name != ALL_OTHERS}
    return {name: None for name in base if name not in named} | named


def _drop_stars(value: Any, prefix: str, path: Path) -> Any:
    """A value that replaces all that was there, so that each `*` in it has nothing to remove."""
    if not isinstance(value, dict):
        return value
    named = _expand_star({}, value, prefix, path)
    return {name: _drop_stars(each, f"{prefix}{name}.", path) for name, each in named.items()}


def _is_renamed(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> bool:
    """Whether both are networks, the new one with another name. The width of one network says nothing of another."""
    names = [values.get("name") for values in (old, new)]
    return all(isinstance(name, str) for name in names) and names[0] != names[1]
