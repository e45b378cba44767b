"""The plan: a study unfolded into recipes and views. Imports neither torch nor zarr."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustfeatures.errors import UserError, suggest
from robustfeatures.experiments.catalogue import experiment_modules, load_experiment
from robustfeatures.models.registry import find_network
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.plan.sizes import original_data_size
from robustfeatures.pipeline.plan.view import Part, View, make_views
from robustfeatures.pipeline.study.checks import check_digests
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.study import Study, find_study, read_study
from robustfeatures.pipeline.study.validation import validate
from robustfeatures.training.settings import Model


@dataclass(frozen=True)
class Plan:
    """All recipes of a study by artifact (`<stage>/<label>-<digest>`), and its views. Inputs come first."""

    recipes: Mapping[str, Recipe]
    views: tuple[View, ...]

    def inputs(self, artifact: str) -> list[str]:
        """The artifacts that a recipe has as inputs."""
        return [recipe.name for recipe in self.recipes[artifact].inputs.values()]


def unfold(config: Config, studies: Path) -> Plan:
    """The plan of the configured study, whose file lies in the folder `studies`.

    Raises:
        UserError: the study is unknown, or something in its file is wrong.
    """
    path = find_study(studies, config.study)
    study = read_study(path)
    try:
        for where, data in study.all_data().items():
            check_digests(data, where)
        pieces = Pieces(study)
        parts = {identifier: _part(pieces, identifier, str(path)) for identifier in study.experiments}
    except UserError as error:
        message = str(error)
        raise UserError(message if message.startswith(str(path)) else f"{path}: {message}") from error
    recipes: dict[str, Recipe] = {}
    for part in parts.values():
        for need in part.needs:
            need.recipe.collect(recipes)
    try:
        for recipe in recipes.values():
            _check_images(study, recipe)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return Plan(recipes, tuple(make_views(study, config.study, parts)))


def _check_images(study: Study, recipe: Recipe) -> None:
    """Check that the network of a recipe accepts the size of its training images, where that size is known."""
    if not isinstance(recipe.parameters, Model):
        return
    architecture, size = recipe.parameters.architecture, original_data_size(recipe)
    if size is not None:
        where = next(where for where, one in study.all_architectures().items() if one == architecture)
        find_network(architecture.name).check_images(size.shape, where)


def _part(pieces: Pieces, identifier: str, where: str) -> Part:
    if identifier not in experiment_modules():
        known = suggest(identifier, experiment_modules())
        raise UserError(f"{where}: experiments.{identifier}: there is no such experiment{known}")
    found = load_experiment(identifier)
    try:
        settings: Any = validate(found.settings, dict(pieces.study.experiments[identifier]), "")
    except UserError as error:
        raise UserError(f"{where}: experiments.{identifier}.{str(error).removeprefix(': ')}") from error
    try:
        return Part(found, settings, found.needs(pieces, settings))
    except UserError as error:
        raise UserError(f"{where}: {error}; experiment {identifier} needs it") from error
