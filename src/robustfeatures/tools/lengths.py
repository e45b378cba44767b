"""The L2 radii and steps of images in the text of a study, which grow with the images."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml

from robustfeatures.attacks.settings import NORM_NAMES, LinfRadius
from robustfeatures.errors import UserError
from robustfeatures.experiments.catalogue import load_experiment
from robustfeatures.pipeline.plan.canonical import to_json
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.plan import read_experiment
from robustfeatures.pipeline.study.extends import read_values
from robustfeatures.pipeline.study.parameters import Measurement
from robustfeatures.pipeline.study.study import Study

# A relative step size is a share of the radius and stays.
LENGTHS = ("eps", "step_size", "radii")
# As study files write numbers. YAML 1.1, which this file reads alone, takes some of them for text.
NUMBER = re.compile(r"\+?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?(/\d+)?")


def scale_lengths(path: Path, study: Study, factor: float) -> str:
    """The text of a study's file with the lengths of images times `factor`. The radii of toy models stay.

    Raises:
        UserError: an experiment or its settings are wrong, radii are those of Linf, or a length is no plain number or
            stands, by an alias, for another value too.
    """
    with read_values(path).errors_name_the_file():
        settings = {name: read_experiment(study, name)[1] for name in study.experiments}
    toys = {name for name, found in settings.items() if _needs_no_images(study, name, found)}
    _check_norms(path.stem, study, {name: found for name, found in settings.items() if name not in toys})
    text = path.read_text(encoding="utf-8")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert root is not None
    lengths, others = {}, set()
    for node, where in _find_scalars(root, ()):
        place = node.end_mark.index
        if not _is_length(where) or (where[0] == "experiments" and where[1] in toys):
            others.add(place)
        elif node.tag != "tag:yaml.org,2002:null":
            lengths[place] = node
    for place, node in sorted(lengths.items(), reverse=True):
        if place in others or node.style is not None or not NUMBER.fullmatch(node.value):
            raise UserError(f"--like: {path.stem}: the length {node.value} is no plain number, or another value too")
        over, _, under = node.value.partition("/")
        scaled = f"{float(over) / float(under or 1) * factor:.3g}"
        text = text[: place - len(node.value)] + scaled + text[place:]
    return text


def _needs_no_images(study: Study, identifier: str, settings: Any) -> bool:
    """Whether an experiment reads nothing but measurements of toy models."""
    try:
        recipes = [need.recipe for need in load_experiment(identifier).needs(Pieces(study), settings)]
    except UserError:
        # It needs a piece that the study lacks. Toy models need none.
        return False
    return bool(recipes) and all(isinstance(each.parameters, Measurement) and not each.inputs for each in recipes)


def _check_norms(name: str, study: Study, settings: Mapping[str, Any]) -> None:
    """Check that no radius of images is one of Linf. `settings` are those of experiments, with their defaults.

    Raises:
        UserError: one is.
    """
    places = {field.name: getattr(study, field.name) for field in fields(study) if field.name != "experiments"}
    places |= {f"experiments.{identifier}": found for identifier, found in settings.items()}
    for place, value in places.items():
        if _has_linf(to_json(value), ("",)) or _takes_linf(type(value)):
            raise UserError(
                f"--like: {name} has Linf radii, in {place}, which do not grow with images; choose another study"
            )


def _has_linf(value: Any, where: tuple[str, ...]) -> bool:
    """Whether a JSON value below the fields `where` has the norm Linf, or a radius per norm that is one of Linf."""
    if isinstance(value, dict):
        return any(
            (name == "linf" and _is_length((*where, name))) or _has_linf(item, (*where, name))
            for name, item in value.items()
        )
    if isinstance(value, list):
        return any(_has_linf(item, where) for item in value)
    return value == "linf" and _last(where) == "norm"


def _takes_linf(kind: type) -> bool:
    """Whether settings of this kind have a field for an Linf radius."""
    hints = get_type_hints(kind, include_extras=True).values()
    return any(LinfRadius in (hint, *get_args(hint)) for hint in hints)


def _find_scalars(node: yaml.Node, where: tuple[str, ...]) -> Iterator[tuple[yaml.ScalarNode, tuple[str, ...]]]:
    """The numbers and texts of a YAML text, each with the names of the fields round it, outermost first."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _find_scalars(value, (*where, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _find_scalars(item, where)
    elif isinstance(node, yaml.ScalarNode):
        yield node, where


def _is_length(where: tuple[str, ...]) -> bool:
    """Whether a number in these fields is a length: the innermost one is, or the norm of one."""
    return _last(where) in LENGTHS or (where[-1:] != () and where[-1] in NORM_NAMES and _last(where[:-1]) in LENGTHS)


def _last(where: tuple[str, ...]) -> str:
    """The innermost field. A grid of trainings writes `adversary.eps`."""
    return where[-1].rpartition(".")[2] if where else ""
