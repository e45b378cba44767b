"""A study: the data, networks, trainings and experiments in one YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen

from robustfeatures.attacks.evaluating.settings import Attacks
from robustfeatures.attacks.settings import NormName
from robustfeatures.data.settings import Data, Split
from robustfeatures.derived.settings import Method
from robustfeatures.engine.settings import PositiveFloat, Precision, Seed, Strict
from robustfeatures.errors import UserError, suggest
from robustfeatures.models.settings import Architecture
from robustfeatures.pipeline.study.checks import (
    check_attacks,
    check_data,
    check_network,
    check_published_setting,
    check_training,
)
from robustfeatures.pipeline.study.grids import Cell, Grid, unfold_grid
from robustfeatures.pipeline.study.parameters import Name
from robustfeatures.pipeline.study.validation import validate
from robustfeatures.pipeline.study.yaml import read_yaml
from robustfeatures.training.settings import Training


@dataclass(frozen=True, kw_only=True)
class DerivedSet(Strict):
    """A derived data set: the training of its source model by name, the method, and the training on it by name."""

    source: str
    method: Method
    training: str
    splits: Annotated[tuple[Split, ...], MinLen(1)] = ("train",)


@dataclass(frozen=True, kw_only=True)
class Robustness(Strict):
    """The attacks of every evaluation and the radii that A1 reports. The clean accuracy is always reported."""

    norm: NormName
    attacks: Attacks
    eps: Annotated[tuple[PositiveFloat, ...], MinLen(1)]


@dataclass(frozen=True, kw_only=True)
class Study(Strict):
    """The fields of a study file. The study chooses the names of trainings and derived sets.

    `published_setting` is the setting of the papers ("CIFAR-10") that the study repeats; only then are measured and
    published numbers compared. `precision` applies to convolutions and matrix products in training, attack and
    evaluation; `compile` has torch compile the networks there. `experiments` maps an id (A1 ... E4) to the settings of
    that experiment. Experiments use `other_data` and `other_architectures` by name. The cells of `grids` are named
    trainings. A study of the theory has neither data nor networks.
    """

    title: str
    data: Data | None = None
    other_data: Mapping[Name, Data] = field(default_factory=dict)
    architecture: Architecture | None = None
    other_architectures: Mapping[Name, Architecture] = field(default_factory=dict)
    precision: Precision = "float32"
    compile: bool = False
    seeds: Annotated[tuple[Seed, ...], MinLen(1)]
    training: Mapping[Name, Training] = field(default_factory=dict)
    grids: Mapping[Name, Grid] = field(default_factory=dict)
    derived: Mapping[Name, DerivedSet] = field(default_factory=dict)
    robustness: Robustness | None = None
    experiments: Mapping[str, Mapping[str, Any]]
    published_setting: str | None = None

    def all_data(self) -> dict[str, Data]:
        """Every data set of the study by its field."""
        named = {f"other_data.{name}": data for name, data in self.other_data.items()}
        return named if self.data is None else {"data": self.data, **named}

    def all_architectures(self) -> dict[str, Architecture]:
        """Every network of the study by its field."""
        named = {f"other_architectures.{name}": network for name, network in self.other_architectures.items()}
        return named if self.architecture is None else {"architecture": self.architecture, **named}

    def cells(self, grid: str) -> tuple[Cell, ...]:
        """The trainings of a named grid."""
        return unfold_grid(grid, self.grids[grid], self.training)


def read_study(path: Path) -> Study:
    """Read a study from a file and check its fields and names.

    Raises:
        UserError: the file, a field or a name in it is wrong; the message names file and field.
    """
    study = validate(Study, read_yaml(path), str(path))
    try:
        for where, data in study.all_data().items():
            check_data(data, where)
        for where, architecture in study.all_architectures().items():
            check_network(architecture, where)
        for name, training in study.training.items():
            check_training(training, f"training.{name}")
        cells = {cell.name: cell.training for grid in study.grids for cell in study.cells(grid)}
        for name, training in cells.items():
            check_training(training, f"grids.{name}")
        if study.published_setting is not None:
            check_published_setting(study.published_setting)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    study = replace(study, training={**study.training, **cells})
    for name, derived in study.derived.items():
        for role, used in (("source", derived.source), ("training", derived.training)):
            if used not in study.training:
                raise UserError(f"{path}: derived.{name}.{role}: {used!r} is unknown{suggest(used, study.training)}")
        if "test" in derived.splits:
            raise UserError(f"{path}: derived.{name}.splits: a set to train on must not be derived from the test split")
    if study.robustness is not None:
        if len(set(study.robustness.eps)) < len(study.robustness.eps):
            raise UserError(f"{path}: robustness.eps: a radius appears twice")
        check_attacks(study.robustness.norm, study.robustness.attacks, f"{path}: robustness.attacks")
    if len(set(study.seeds)) < len(study.seeds):
        raise UserError(f"{path}: seeds: a seed appears twice")
    return study


def find_study(folder: Path, name: str) -> Path:
    """The file of a study.

    Raises:
        UserError: there is no study of that name.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = suggest(name, (file.stem for file in folder.glob("*.yaml")))
        raise UserError(f"config.yaml: study: {name!r} is unknown{known}")
    return path
