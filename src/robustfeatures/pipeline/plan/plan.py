"""The plan: a study unfolded into recipes and views. Imports neither torch nor zarr."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from robustfeatures.data.settings import Data
from robustfeatures.errors import UserError, join_words, suggest
from robustfeatures.experiments.catalogue import experiment_modules, load_experiment
from robustfeatures.experiments.experiment import Experiment
from robustfeatures.models.registry import find_network
from robustfeatures.pipeline.plan.contents import check_contents, check_weights
from robustfeatures.pipeline.plan.gates import check_all_used, find_gates
from robustfeatures.pipeline.plan.lacking import find_lacking
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe, find_architecture
from robustfeatures.pipeline.plan.sizes import original_data, original_data_size
from robustfeatures.pipeline.plan.view import Part, View, make_views
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.extends import read_values
from robustfeatures.pipeline.study.study import Study, find_study, make_study
from robustfeatures.training.settings import Model

# In bytes. A file's name may have 255, and some names have the number of seeds and a digest beside the label.
LONGEST_LABEL = 180


@dataclass(frozen=True)
class Plan:
    """All recipes of a study by artifact (`<stage>/<label>-<digest>`), and its views. Inputs come first."""

    recipes: Mapping[str, Recipe]
    views: tuple[View, ...]

    @property
    def study(self) -> str:
        """The name of the study; empty if it has no views."""
        return self.views[0].study if self.views else ""

    @property
    def view_jobs(self) -> dict[str, list[View]]:
        """The views that each job writes, by the name of the job."""
        found: dict[str, list[View]] = {}
        for view in self.views:
            found.setdefault(view.job, []).append(view)
        return found

    def inputs(self, artifact: str) -> list[str]:
        """The artifacts that a recipe has as inputs."""
        return [recipe.name for recipe in self.recipes[artifact].inputs.values()]

    def depths(self) -> dict[str, int]:
        """The number of artifacts on the longest path from each artifact down to the data, itself included."""
        depths: dict[str, int] = {}
        for name in self.recipes:
            depths[name] = 1 + max((depths[below] for below in self.inputs(name)), default=0)
        return depths

    @cached_property
    def same_networks(self) -> Mapping[str, str]:
        """For a training without probes, one of the plan with probes, which gives the same network.

        A6 records the trainings whose networks A2 tests. Only trainings of one depth count; otherwise two jobs could
        wait for each other.
        """
        depths = self.depths()
        trainings = [
            ((replace(recipe.parameters, probes=()), recipe.inputs["data"].name, depths[name]), name, recipe.parameters)
            for name, recipe in self.recipes.items()
            if isinstance(recipe.parameters, Model)
        ]
        probed = {training: name for training, name, parameters in reversed(trainings) if parameters.probes}
        return {
            name: probed[training]
            for training, name, parameters in trainings
            if not parameters.probes and training in probed
        }


def unfold(config: Config, studies: Path) -> Plan:
    """The plan of the configured study, whose file lies in the folder `studies`.

    Raises:
        UserError: the study is unknown, or something in its file is wrong.
    """
    written = read_values(find_study(studies, config.study))
    with written.errors_name_the_file():
        study = make_study(written.values, written.path.parent)
        for where, data in study.all_data().items():
            check_contents(data, where)
        for name, pretrained in study.models.items():
            check_weights(pretrained, f"models.{name}")
        pieces = Pieces(study)
        parts = _parts(pieces, sorted(study.experiments, key=_place))
        check_all_used(pieces, (gate for part in parts.values() for gate in part.gates))
    recipes: dict[str, Recipe] = {}
    for part in parts.values():
        for recipe in (*(need.recipe for need in part.needs), *(gate.measured for gate in part.gates)):
            recipe.collect(recipes)
    with written.errors_name_the_file():
        for recipe in recipes.values():
            _check_label(recipe)
            _check_model(study, recipe)
    return Plan(recipes, tuple(make_views(study, config.study, written.text, parts)))


def _check_label(recipe: Recipe) -> None:
    """Check that the files of an artifact can have its label in their names.

    Raises:
        UserError: it is too long.
    """
    length = len(recipe.label.encode())
    if length > LONGEST_LABEL:
        raise UserError(
            f"the name {recipe.label} has {length} bytes, and {LONGEST_LABEL} are possible; shorten a name that the "
            "study gives, as that of a grid"
        )


def _place(identifier: str) -> tuple[str, int, str]:
    """A2 comes before A10, and both before B1, in whatever order the study has them."""
    return identifier[:1], len(identifier), identifier


def _check_model(study: Study, recipe: Recipe) -> None:
    """Check that the network of a recipe suits its images, and that there are some to train on, where this is known.

    Raises:
        UserError: the images are too small, or have other channels; or there are none.
    """
    architecture = find_architecture(recipe.parameters)
    if architecture is None:
        return
    size = original_data_size(recipe)
    if size is not None:
        if isinstance(recipe.parameters, Model) and not size.images.get("train"):
            others = " and ".join(split for split, count in size.images.items() if count)
            raise UserError(f"{_name_data(study, recipe)}: has no images to train on, only {others}")
        where = next(where for where, one in study.all_architectures().items() if one == architecture)
        find_network(architecture.name).check_images(size.shape, where)


def _name_data(study: Study, recipe: Recipe) -> str:
    """The name in the study of the original data set that a recipe builds on, or of the one that it is drawn from."""
    original = original_data(recipe).parameters
    assert isinstance(original, Data)
    found = (original.source, original.path)
    return next(name for name, data in study.all_data().items() if (data.source, data.path) == found)


def _parts(pieces: Pieces, identifiers: Iterable[str]) -> dict[str, Part]:
    """The experiments of a study, each with its needs.

    Raises:
        UserError: an experiment is unknown, a setting is wrong, or the study lacks pieces; all of these are named.
    """
    parts: dict[str, Part] = {}
    lacking: dict[str, list[str]] = {}
    for identifier in identifiers:
        found, settings = read_experiment(pieces.study, identifier)
        try:
            needs = found.needs(pieces.of_experiment(identifier), settings)
            parts[identifier] = Part(found, settings, needs, find_gates(pieces, (need.recipe for need in needs)))
        except UserError as error:
            for message in find_lacking(pieces.study, found, settings) or [str(error)]:
                lacking.setdefault(message, []).append(identifier)
    if lacking:
        raise UserError("; ".join(f"{message}; {_need(needing)} it" for message, needing in lacking.items()))
    return parts


def _need(identifiers: Sequence[str]) -> str:
    several = len(identifiers) > 1
    return f"experiment{'s' * several} {join_words(identifiers)} need{'s' * (not several)}"


def read_experiment(study: Study, identifier: str) -> tuple[Experiment, Any]:
    """An experiment, and its settings in the study.

    Raises:
        UserError: there is no such experiment, or it has no such setting.
    """
    if identifier not in experiment_modules():
        known = suggest(identifier.upper(), experiment_modules())
        raise UserError(f"experiments.{identifier}: there is no such experiment{known}")
    found = load_experiment(identifier)
    return found, study.experiment_settings(identifier, found.settings)
