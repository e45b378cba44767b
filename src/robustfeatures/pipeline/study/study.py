"""A study: the data, networks, trainings and experiments in one YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_types import MinLen
from pydantic import AfterValidator

from robustfeatures.attacks.evaluating.settings import Attacks
from robustfeatures.attacks.settings import NormName, check_in_norm
from robustfeatures.data.settings import Data, Split
from robustfeatures.derived.settings import Inversion, Method, TargetedAttack
from robustfeatures.engine.settings import PositiveFloat, Precision, Seed, Strict
from robustfeatures.errors import UserError, suggest
from robustfeatures.models.settings import Architecture, Pretrained
from robustfeatures.pipeline.study.checks import (
    check_attacks,
    check_data,
    check_network,
    check_pretrained,
    check_published_setting,
    check_training,
)
from robustfeatures.pipeline.study.extends import read_values
from robustfeatures.pipeline.study.gates import Gates
from robustfeatures.pipeline.study.grids import Cell, Grid, unfold_grid
from robustfeatures.pipeline.study.parameters import Distinct, Name
from robustfeatures.pipeline.study.validation import validate
from robustfeatures.training.settings import Training

T = TypeVar("T")

# How much further on the seeds are of networks that share no initialisation with the source of the same seed.
FURTHER_SEEDS = frozenset({1000, 2000})


@dataclass(frozen=True, kw_only=True)
class DerivedSet(Strict):
    """A derived data set: the network with which it is made, the method, and the training on it."""

    source: str
    """The name of the training, or of the network of `models`, with which the set is made."""
    method: Method
    """How images and labels are made."""
    training: str
    """The name of the training on the set."""
    source_data: Name | None = None
    """The name in `other_data` of the set that the source is trained on, where that is not D."""
    splits: Annotated[tuple[Split, ...], MinLen(1), Distinct] = ("train",)
    """The splits of D that are derived."""


@dataclass(frozen=True, kw_only=True)
class Robustness(Strict):
    """The attacks of every evaluation and the radii that A1 reports. The clean accuracy is always reported."""

    norm: NormName
    """The norm of all radii."""
    attacks: Attacks
    """The attacks of every evaluation, one after another."""
    eps: Annotated[tuple[PositiveFloat, ...], MinLen(1), AfterValidator(check_in_norm)]
    """The radii that are reported, in pixels of [0, 1]; an Linf radius is below 1."""


@dataclass(frozen=True, kw_only=True)
class Study(Strict):
    """The fields of a study file. The study chooses the names of trainings and derived sets.

    A file may also have the field `extends`: it is another study with changes (`pipeline/study/extends.py`). A study of
    the theory has neither data nor networks.
    """

    title: str
    """What the page of the study is called."""
    data: Data | None = None
    """The original data set, D."""
    other_data: Mapping[Name, Data] = field(default_factory=dict)
    """Further data sets that experiments use by name."""
    architecture: Architecture | None = None
    """The network of every training that names no other."""
    other_architectures: Mapping[Name, Architecture] = field(default_factory=dict)
    """Further networks that experiments use by name."""
    precision: Precision = "float32"
    """The number format of convolutions and matrix products in training, attack and evaluation."""
    compile: bool = False
    """Whether torch compiles the networks in training, attack and evaluation."""
    seeds: Annotated[tuple[Seed, ...], MinLen(1)]
    """The seeds. Each training, attack and derived set is made once per seed; splits and subsets have their own."""
    training: Mapping[Name, Training] = field(default_factory=dict)
    """Trainings by name."""
    models: Mapping[Name, Pretrained] = field(default_factory=dict)
    """Networks trained elsewhere; their names stand wherever a training on original data stands."""
    grids: Mapping[Name, Grid] = field(default_factory=dict)
    """Grids of trainings by name; their cells are trainings too."""
    derived: Mapping[Name, DerivedSet] = field(default_factory=dict)
    """Derived data sets by name."""
    robustness: Robustness | None = None
    """The attacks and the radii of every evaluation."""
    experiments: Mapping[str, Mapping[str, Any]]
    """The settings of each experiment by its id (A1 ... X6), also the `seeds` that it uses, by default all."""
    gates: Gates = field(default_factory=Gates)
    """What networks and attacks must reach. The claims of an experiment that builds on less are not tested."""
    published_setting: str | None = None
    """The setting of the papers whose published numbers stand beside the measured ones, such as `CIFAR-10`."""
    reduced: bool = False
    """Whether the data are others than the paper's or a part of them, so that nothing is compared with its numbers. A
    validation split does not count as a part."""

    def all_data(self) -> dict[str, Data]:
        """Every data set of the study by its field."""
        named = {f"other_data.{name}": data for name, data in self.other_data.items()}
        return named if self.data is None else {"data": self.data, **named}

    def trained_architectures(self) -> dict[str, Architecture]:
        """Every network that the study trains, by its field."""
        named = {f"other_architectures.{name}": network for name, network in self.other_architectures.items()}
        return named if self.architecture is None else {"architecture": self.architecture, **named}

    def all_architectures(self) -> dict[str, Architecture]:
        """Every network of the study by its field, also those trained elsewhere."""
        elsewhere = {
            f"models.{name}": Architecture(name=one.architecture, width=one.width) for name, one in self.models.items()
        }
        return self.trained_architectures() | elsewhere

    def experiment_seeds(self, identifier: str) -> tuple[int, ...]:
        """The seeds that an experiment uses."""
        return tuple(self.experiments.get(identifier, {}).get("seeds", self.seeds))

    def experiment_settings(self, identifier: str, kind: type[T]) -> T:
        """The settings of a kind that an experiment has here; the defaults, if the study does not have it.

        Raises:
            UserError: a setting is unknown, missing, of the wrong type or out of range.
        """
        given = {name: value for name, value in self.experiments.get(identifier, {}).items() if name != "seeds"}
        return validate(kind, given, f"experiments.{identifier}.")

    def cells(self, grid: str) -> tuple[Cell, ...]:
        """The trainings of a named grid."""
        return unfold_grid(grid, self.grids[grid], self.training)


def read_study(path: Path) -> Study:
    """Read a study from a file and from the studies that it extends, and check its fields and names.

    Raises:
        UserError: a file, a field or a name in it is wrong; the message names file and field.
    """
    found = read_values(path)
    with found.errors_name_the_file():
        return make_study(found.values, path.parent)


def make_study(values: Any, folder: Path) -> Study:
    """The study with these fields; files of the user's own lie in `folder`.

    Raises:
        UserError: a field or a name in it is wrong; the message begins with the field.
    """
    study = validate(Study, values)
    for where, data in study.all_data().items():
        check_data(data, where)
    for where, architecture in study.trained_architectures().items():
        check_network(architecture, where, folder)
    for name, pretrained in study.models.items():
        check_pretrained(pretrained, f"models.{name}", folder)
    for name, training in study.training.items():
        check_training(training, f"training.{name}", compile=study.compile)
    trainings = _add_cells(study)
    if study.published_setting is not None:
        check_published_setting(study.published_setting)
    elif study.reduced:
        raise UserError("reduced: there is no published_setting that the study could be a reduced version of")
    study = replace(study, training=trainings)
    _check_names(study)
    _check_inversions(study)
    _check_gates(study)
    _check_seeds(study)
    return study


def _add_cells(study: Study) -> dict[str, Training]:
    """All trainings of a study by name, also the cells of its grids, which are checked."""
    found = dict(study.training)
    for grid in study.grids:
        for cell in study.cells(grid):
            if cell.name in found:
                raise UserError(f"grids.{grid}: another training has the name of its cell {cell.name!r}; rename one")
            check_training(cell.training, f"grids.{cell.name}", compile=study.compile)
            found[cell.name] = cell.training
    return found


def _check_names(study: Study) -> None:
    """Check that derived sets name known trainings and models, and that nothing appears twice."""
    if "D" in study.other_data:
        raise UserError("other_data.D: D is the data set of the field data; choose another name")
    for name in study.models:
        if name in study.training:
            raise UserError(f"models.{name}: the name is that of a training; choose another, or drop one")
    networks: dict[str, object] = {**study.training, **study.models}
    for name, derived in study.derived.items():
        for role, used, known in (("source", derived.source, networks), ("training", derived.training, study.training)):
            if used not in known:
                raise UserError(f"derived.{name}.{role}: {used!r} is unknown{suggest(used, known)}")
        if "test" in derived.splits:
            raise UserError(f"derived.{name}.splits: a set to train on must not be derived from the test split")
        if "train" not in derived.splits:
            raise UserError(f"derived.{name}.splits: 'train' is missing; a network is trained on it")
    if study.robustness is not None:
        if len(set(study.robustness.eps)) < len(study.robustness.eps):
            raise UserError("robustness.eps: a radius appears twice")
        check_attacks(study.robustness.norm, study.robustness.attacks, "robustness.attacks")


def _check_inversions(study: Study) -> None:
    """Check that a deviation of noise is given for starts from noise alone."""
    for name, derived in study.derived.items():
        method, where = derived.method, f"derived.{name}.method"
        if isinstance(method, Inversion) and method.start != "noise" and method.noise_deviation is not None:
            raise UserError(f"{where}.noise_deviation: the start {method.start!r} takes none; 'noise' does")


def _check_gates(study: Study) -> None:
    """Check that gates name trainings, and derived sets whose attack can succeed or fail."""
    attacked = [name for name, derived in study.derived.items() if isinstance(derived.method, TargetedAttack)]
    for kind, what, gated, pieces in (
        ("clean_accuracy", "training", study.gates.clean_accuracy, list(study.training)),
        ("attack_success", "derived set made by a targeted attack", study.gates.attack_success, attacked),
    ):
        for name in gated:
            if name not in pieces:
                raise UserError(f"gates.{kind}.{name}: is no {what}{suggest(name, pieces)}")


def _check_seeds(study: Study) -> None:
    if len(set(study.seeds)) < len(study.seeds):
        raise UserError("seeds: a seed appears twice")
    for one, other in combinations(study.seeds, 2):
        if abs(one - other) in FURTHER_SEEDS:
            raise UserError(
                f"seeds: {one} and {other} differ by {abs(one - other)}, so some of their networks begin with the "
                "same weights; choose others"
            )
    for identifier, settings in study.experiments.items():
        seeds = settings.get("seeds", study.seeds)
        if (
            not isinstance(seeds, (list, tuple))
            or not seeds
            or any(seeds.count(each) > study.seeds.count(each) for each in seeds)
        ):
            raise UserError(
                f"experiments.{identifier}.seeds: {seeds} is no list of some of the seeds {list(study.seeds)}"
            )


def find_study(folder: Path, name: str, field: str = "config.yaml: study") -> Path:
    """The file of a study; `field` is what names it.

    Raises:
        UserError: there is no study of that name.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        if not folder.is_dir():
            raise UserError(f"{folder}: there is no such folder, so no study; change to the folder of the workflow")
        known = suggest(name, (file.stem for file in folder.glob("*.yaml")))
        raise UserError(f"{field}: {name!r} is unknown{known}")
    return path
