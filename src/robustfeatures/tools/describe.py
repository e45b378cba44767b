"""Describe an experiment: what it shows, where in the paper, its settings, and what it uses of a study."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Any, TypeVar

from robustfeatures.errors import UserError, suggest
from robustfeatures.experiments.catalogue import experiment_modules, load_experiment
from robustfeatures.experiments.experiment import Experiment
from robustfeatures.models.settings import Architecture
from robustfeatures.pipeline.plan.canonical import to_json
from robustfeatures.pipeline.plan.identity import flatten
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.study.checks import PUBLISHED
from robustfeatures.pipeline.study.extends import read_values
from robustfeatures.pipeline.study.study import Robustness, Study, read_study
from robustfeatures.pipeline.study.validation import validate
from robustfeatures.pipeline.study.yaml import read_yaml
from robustfeatures.tools.field_docs import read_field_docs

T = TypeVar("T")


@dataclass(frozen=True)
class Description:
    """What is known of an experiment before it runs.

    paper, url: its paper. shows: the lines that say what it shows, and where in the paper.
    settings: by default, or where a setting has none, as in the study `settings_study`; None if no study has it.
    uses: the pieces of the study `example` that it uses, names by field; a field without names is used whole. A toy
        model uses none.
    reads: how many artifacts of each stage it reads for each seed, in the study `example`.
    studies: the settings that each study with it gives.
    """

    experiment: Experiment
    paper: str
    url: str
    shows: Sequence[str]
    settings: Any
    settings_study: str | None
    example: str | None
    uses: Mapping[str, Sequence[str]]
    reads: Mapping[str, int]
    studies: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class RecordedPieces(Pieces):
    """The pieces of a study, which record what an experiment uses: a field, and a name within it or ""."""

    used: dict[tuple[str, str], None] = dataclasses.field(default_factory=dict)

    def data(self, name: str = "D") -> Recipe:
        if name == "D":
            self.used["data", ""] = None
        return super().data(name)

    @property
    def robustness(self) -> Robustness:
        self.used["robustness", ""] = None
        return super().robustness

    def architecture(self, name: str | None) -> Architecture:
        if name is None:
            self.used["architecture", ""] = None
        return super().architecture(name)

    def _find(self, known: Mapping[str, T], name: str, field: str) -> T:
        self.used[field, name] = None
        return super()._find(known, name, field)

    def _pretrained(self, label: str, name: str, *others: Any) -> Recipe:
        self.used["models", name] = None
        return super()._pretrained(label, name, *others)


def find_description(identifier: str, studies: Path, preferred: str) -> Description:
    """The description of an experiment. Settings and pieces are those of the study `preferred` where there is a choice.

    Raises:
        UserError: there is no such experiment.
    """
    name = identifier.upper()
    if name not in experiment_modules():
        raise UserError(f"{identifier}: there is no such experiment{suggest(name, experiment_modules())}")
    experiment = load_experiment(name)
    having = _find_studies(name, studies, preferred)
    settings, found = _read_settings(experiment, having)
    example, uses, reads = _find_example(experiment, studies, having)
    published = read_yaml(PUBLISHED / f"{experiment.paper}.yaml")
    shows = cleandoc(sys.modules[experiment_modules()[name]].__doc__ or "").splitlines()
    paper, url = published["paper"], published["url"]
    return Description(experiment, paper, url, shows, settings, found, example, uses, reads, having)


def describe(identifier: str, studies: Path, preferred: str) -> Iterator[str]:
    """Lines on an experiment. Settings without defaults are those of the `preferred` study, or of another that has it.

    Raises:
        UserError: there is no such experiment.
    """
    found = find_description(identifier, studies, preferred)
    yield f"{found.experiment.id}: {found.experiment.title}"
    yield f"paper: {found.paper}"
    yield from found.shows
    yield f"settings{f', as in the study {found.settings_study}' if found.settings_study else ''}"
    yield from (f"  {line}" for line in cleandoc(found.experiment.settings.__doc__ or "").splitlines())
    docs = read_field_docs(found.experiment.settings)
    for field in dataclasses.fields(found.experiment.settings):
        required = field.default is field.default_factory is dataclasses.MISSING
        value = "" if found.settings is None else show_value(getattr(found.settings, field.name))
        yield f"  {field.name}: {value}{' (a study must give it)' if required else ''}"
        if field.name in docs:
            yield f"      {docs[field.name]}"
    if found.example is not None:
        yield f"uses of the study {found.example}" + ("" if found.uses else ": nothing")
        yield from (f"  {field}{': ' if names else ''}{', '.join(names)}" for field, names in found.uses.items())
        counts = (f"{count} of the stage {stage}" for stage, count in found.reads.items())
        yield f"reads for each seed: {', '.join(counts)}"
    yield f"studies with it: {', '.join(found.studies) or 'none'}"


def show_value(value: Any) -> str:
    """The value of a setting on one line; nested values have dotted names."""
    pairs = flatten(to_json(value))
    return ", ".join(f"{name.lstrip('.')}: {item}" if name else f"{item}" for name, item in pairs)


def _find_studies(name: str, studies: Path, preferred: str) -> dict[str, Mapping[str, Any]]:
    """The settings of an experiment in each study that has it, the preferred study first."""
    found = {
        study: experiments[name] for study, experiments in _read_experiments(studies).items() if name in experiments
    }
    return dict(sorted(found.items(), key=lambda item: (item[0] != preferred, item[0])))


@cache
def _read_experiments(studies: Path) -> dict[str, dict[str, Mapping[str, Any]]]:
    """The settings of all experiments by study, without their seeds."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for path in studies.glob("*.yaml"):
        try:
            given = read_values(path).values["experiments"]
            found[path.stem] = {
                str(name): {key: value for key, value in settings.items() if key != "seeds"}
                for name, settings in given.items()
            }
        except (UserError, LookupError, TypeError, AttributeError):
            # A study with a mistake says so when it is planned.
            continue
    return found


def _read_settings(experiment: Experiment, having: Mapping[str, Mapping[str, Any]]) -> tuple[Any, str | None]:
    """The defaults, or where a setting has none, the settings of a study, and the study's name."""
    for study, values in ((None, {}), *having.items()):
        try:
            return validate(experiment.settings, values), study
        except UserError:
            continue
    return None, None


def _find_example(
    experiment: Experiment, studies: Path, having: Mapping[str, Mapping[str, Any]]
) -> tuple[str | None, dict[str, list[str]], Counter[str]]:
    """The first study that has all that an experiment needs, what it uses there, and what it reads for each seed."""
    for name in having:
        path = studies / f"{name}.yaml"
        try:
            study, written = read_study(path), read_values(path).values
            pieces = RecordedPieces(replace(study, seeds=study.seeds[:1]))
            needs = experiment.needs(pieces, study.experiment_settings(experiment.id, experiment.settings))
        except UserError:
            # A study with a mistake says so when it is planned.
            continue
        order = [each.name for each in dataclasses.fields(Study)]
        uses: dict[str, list[str]] = {}
        for part, piece in sorted(pieces.used, key=lambda used: order.index(used[0])):
            # The cells of a grid, and sets with a changed attack, have names that are not in the file.
            if not piece or piece in written[part]:
                uses.setdefault(part, []).extend([piece] if piece else [])
        return name, uses, Counter(need.recipe.stage.name for need in needs)
    return None, {}, Counter()
