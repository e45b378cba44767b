"""The plan: a study unfolded into recipes and views, and made ready for Snakemake. Imports neither torch nor zarr."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Gt

from robustfeatures.errors import UserError, suggestion
from robustfeatures.experiments.catalogue import experiment, experiment_modules
from robustfeatures.recipes.parameters import Name, Strict
from robustfeatures.recipes.pieces import Pieces
from robustfeatures.recipes.recipe import Recipe
from robustfeatures.recipes.study import Study, check_digests, find_study, read_study
from robustfeatures.recipes.validation import validated
from robustfeatures.recipes.view import Part, View, views_of
from robustfeatures.store.files import read_json, write_json
from robustfeatures.store.references import Artifacts, read_reference, resolve
from robustfeatures.store.store import Store

SEED = re.compile(r"-seed\d+")


@dataclass(frozen=True, kw_only=True)
class Config(Strict):
    """What config.yaml may say.

    Only `study` enters the recipes. Device and threads change the last bits of a result; they are recorded beside it.
    """

    study: Name
    store: str = "results/store"
    raw: str = "results/raw"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads_per_job: Annotated[int, Gt(0)] = 1
    seeds_per_job: Annotated[int, Gt(0)] = 1


@dataclass(frozen=True)
class Batch:
    """Artifacts of one stage that differ in their seed alone, made by one job."""

    name: str
    artifacts: tuple[str, ...]
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """All recipes of a study by artifact (`<stage>/<label>-<digest>`), inputs before what needs them, and its views."""

    recipes: Mapping[str, Recipe]
    views: tuple[View, ...]

    def inputs(self, artifact: str) -> list[str]:
        """The artifacts that one of the recipes builds on."""
        return [_name(recipe) for recipe in self.recipes[artifact].inputs.values()]

    def batches(self, stage: str, seeds_per_job: int) -> list[Batch]:
        """The jobs of a stage: up to `seeds_per_job` artifacts whose labels differ in the seed alone."""
        families: dict[str, list[str]] = {}
        for name, recipe in self.recipes.items():
            if recipe.stage.name == stage:
                families.setdefault(SEED.sub("", recipe.label), []).append(name)
        return [
            self._batch(f"{family}-{first // seeds_per_job}", members[first : first + seeds_per_job])
            for family, members in families.items()
            for first in range(0, len(members), seeds_per_job)
        ]

    def _batch(self, name: str, members: list[str]) -> Batch:
        inputs = [below for member in members for below in self.inputs(member)]
        return Batch(name, tuple(members), tuple(dict.fromkeys(inputs)))


def read_config(values: Any) -> Config:
    """The configuration that Snakemake read.

    Raises:
        UserError: a field is unknown or wrong.
    """
    return validated(Config, values, "config.yaml")


def unfold(config: Config, studies: Path) -> Plan:
    """The plan of the configured study, whose file lies in the folder `studies`.

    Raises:
        UserError: the study is unknown, or something in its file is wrong.
    """
    path = find_study(studies, config.study)
    study = read_study(path)
    try:
        check_digests(study.data)
        parts = {identifier: _part(study, identifier, str(path)) for identifier in study.experiments}
    except UserError as error:
        message = str(error)
        raise UserError(message if message.startswith(str(path)) else f"{path}: {message}") from error
    recipes: dict[str, Recipe] = {}
    for part in parts.values():
        for need in part.needs:
            for recipe in need.recipe.chain():
                recipes.setdefault(_name(recipe), recipe)
    return Plan(recipes, tuple(views_of(study, config.study, parts)))


def prepare(plan: Plan, artifacts: Artifacts, store: Store) -> None:
    """Write down the plan for the jobs, and bring the references in line with the store.

    References whose payload is gone are dropped; where the store already has the payload of a planned recipe, its
    reference is written here, so that no job is needed for it. A reference that exists is right for ever, so none may
    look out of date: each is made at least as new as what it builds on. (Snakemake's `ancient()` would say so too, but
    with it a job whose outputs are missing is passed over when one that it builds on runs for another reason.) For the
    same reason none may bear a time that is still to come, left from before the clock was set back.
    """
    _write_plans(plan, artifacts)
    for name, recipe in plan.recipes.items():
        reference = artifacts.reference(name)
        if reference.exists() and store.manifest(read_reference(reference)["key"]) is None:
            reference.unlink()
        if not reference.exists():
            resolve(artifacts, store, recipe.record())
        _not_in_the_future([reference])
        _make_as_new_as([reference], [artifacts.reference(below) for below in plan.inputs(name)])
    results = artifacts.root.parent
    for view in plan.views:
        sources = [artifacts.plan(view.artifact), *(artifacts.reference(name) for name in view.inputs)]
        reference = artifacts.reference(view.artifact)
        files = [results / name for name in view.outputs]
        _not_in_the_future([artifacts.plan(view.artifact), reference, *files])
        if reference.exists():
            _make_as_new_as([*files, reference], sources)
        else:
            # The files bear no digest in their names and may show another plan. Snakemake looks only at the outputs
            # that were asked for, so a reference that is not there is not reason enough to write them again.
            _make_as_new_as(sources[:1], files, seconds=1.0)


def _write_plans(plan: Plan, artifacts: Artifacts) -> None:
    records: Iterable[tuple[str, dict[str, Any]]] = (
        *((name, recipe.record()) for name, recipe in plan.recipes.items()),
        *((view.artifact, view.record) for view in plan.views),
    )
    for name, record in records:
        path = artifacts.plan(name)
        # The same recipe may come from a study that names its inputs in another way.
        if not path.exists() or read_json(path) != record:
            write_json(path, record)


def _not_in_the_future(files: Iterable[Path]) -> None:
    """Set the time of each file that exists to now where it is later."""
    now = time.time_ns()
    for path in files:
        if path.exists() and path.stat().st_mtime_ns > now:
            os.utime(path, ns=(now, now))


def _make_as_new_as(files: Iterable[Path], sources: Iterable[Path], seconds: float = 0.0) -> None:
    """Make each file that exists newer, by `seconds`, than every one of the sources that exist."""
    newest = max((path.stat().st_mtime_ns for path in sources if path.exists()), default=0) + int(seconds * 1e9)
    for path in files:
        if path.exists() and path.stat().st_mtime_ns < newest:
            os.utime(path, ns=(newest, newest))


def _part(study: Study, identifier: str, where: str) -> Part:
    if identifier not in experiment_modules():
        known = suggestion(identifier, experiment_modules())
        raise UserError(f"{where}: experiments.{identifier}: there is no such experiment{known}")
    found = experiment(identifier)
    try:
        settings: Any = validated(found.settings, dict(study.experiments[identifier]), "")
    except UserError as error:
        raise UserError(f"{where}: experiments.{identifier}.{str(error).removeprefix(': ')}") from error
    try:
        return Part(found, settings, found.needs(Pieces(study), settings))
    except UserError as error:
        raise UserError(f"{where}: {error}; experiment {identifier} needs it") from error


def _name(recipe: Recipe) -> str:
    return f"{recipe.stage.name}/{recipe.artifact}"
