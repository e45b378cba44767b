"""Describe an experiment: what it shows, where in the paper, its settings, and what it asks of a study."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Any

from robustfeatures.errors import UserError, suggest
from robustfeatures.experiments.catalogue import experiment_modules, load_experiment
from robustfeatures.experiments.experiment import Experiment
from robustfeatures.pipeline.plan.canonical import to_json
from robustfeatures.pipeline.plan.identity import flatten
from robustfeatures.pipeline.plan.lacking import ask
from robustfeatures.pipeline.study.checks import PUBLISHED
from robustfeatures.pipeline.study.extends import read_values
from robustfeatures.pipeline.study.study import Study
from robustfeatures.pipeline.study.validation import validate
from robustfeatures.pipeline.study.yaml import read_yaml
from robustfeatures.tools.field_docs import read_field_docs


@dataclass(frozen=True)
class Description:
    """What is known of an experiment before it runs.

    paper, url: its paper. shows: the lines that say what it shows, and where in the paper.
    settings: by default, or where a setting has none, as in the study `settings_study`; None if no study has it.
    asked: the pieces that it asks of a study, names by field; a field without names is asked for alone.
    reads: how many artifacts of each stage it reads for each seed.
    studies: the settings that each study with it gives.
    """

    experiment: Experiment
    paper: str
    url: str
    shows: Sequence[str]
    settings: Any
    settings_study: str | None
    asked: Mapping[str, Sequence[str]]
    reads: Mapping[str, int]
    studies: Mapping[str, Mapping[str, Any]]


def find_description(identifier: str, studies: Path, preferred: str) -> Description:
    """The description of an experiment. Settings are those of the study `preferred` where there is a choice.

    Raises:
        UserError: there is no such experiment.
    """
    name = identifier.upper()
    if name not in experiment_modules():
        raise UserError(f"{identifier}: there is no such experiment{suggest(name, experiment_modules())}")
    experiment = load_experiment(name)
    having = _find_studies(name, studies, preferred)
    settings, found = _read_settings(experiment, having)
    asked, reads = ({}, {}) if settings is None else _find_needs(experiment, settings)
    published = read_yaml(PUBLISHED / f"{experiment.paper}.yaml")
    shows = cleandoc(sys.modules[experiment_modules()[name]].__doc__ or "").splitlines()
    return Description(experiment, published["paper"], published["url"], shows, settings, found, asked, reads, having)


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
    if found.settings is not None:
        yield "asks of a study" + ("" if found.asked else ": nothing")
    yield from (f"  {field}{': ' if names else ''}{', '.join(names)}" for field, names in found.asked.items())
    if found.reads:
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


def _find_needs(experiment: Experiment, settings: Any) -> tuple[dict[str, list[str]], Counter[str]]:
    """The pieces that it asks of a study, and how many artifacts it reads for each seed."""
    asked, needs = ask(Study(title="", seeds=(0,), experiments={}), experiment, settings)
    names: dict[str, list[str]] = {}
    for field, name in asked.lacking:
        names.setdefault(field, []).extend([name] if name else [])
    return names, Counter(need.recipe.stage.name for need in needs)
