"""Which pieces an experiment asks of a study: all of them at once, not only the first that the study lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from robustfeatures.attacks.evaluating.settings import PGD
from robustfeatures.data.settings import Data
from robustfeatures.derived.settings import TargetedAttack
from robustfeatures.errors import UserError, suggest
from robustfeatures.experiments.experiment import Experiment
from robustfeatures.models.settings import Architecture
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.grids import Cell, Grid
from robustfeatures.pipeline.study.study import DerivedSet, Robustness, Study
from robustfeatures.training.settings import Training

T = TypeVar("T")

# The training that derived sets below have; no study can give it this name.
ANY = "?"
# Nothing is computed from these. An experiment that gets them asks for its next piece.
STAND_INS: Mapping[str, Any] = {
    "data": Data(source="digits", validation=0.15, test=0.25),
    "other_data": Data(source="digits", validation=0.15, test=0.25),
    "architecture": Architecture(name="small-cnn"),
    "other_architectures": Architecture(name="small-cnn"),
    "training": Training(epochs=1, batch_size=1, learning_rate=1.0),
    "grids": Grid(base=ANY, cells=({"epochs": (1,)},)),
    "derived": DerivedSet(
        source=ANY,
        training=ANY,
        method=TargetedAttack(kind="targeted-attack", target="random", norm="l2", eps=1.0, step_size=1.0, steps=1),
        splits=("train", "validation"),
    ),
    "robustness": Robustness(norm="l2", eps=(1.0,), attacks=(PGD(kind="pgd", steps=1, relative_step_sizes=(1.0,)),)),
}


@dataclass(frozen=True, eq=False)
class LackingPieces(Pieces):
    """The pieces of a study, with a stand-in for each that it lacks.

    lacking: what was asked for and is lacking, each with its message; a name within a field, or "" for a field alone.
    """

    lacking: dict[tuple[str, str], str] = field(default_factory=dict)

    def grid(self, name: str) -> tuple[Cell, ...]:
        self._find(self.study.grids, name, "grids")
        return (
            super().grid(name)
            if name in self.study.grids
            else (Cell(ANY, {"weight_decay": 0.0}, STAND_INS["training"]),)
        )

    def _find(self, known: Mapping[str, T], name: str, field: str) -> T:
        stand_in: T = STAND_INS[field]
        if name not in known and name != ANY:
            self.lacking.setdefault((field, name), f"{field}: {name!r} is missing{suggest(name, known)}")
        return known.get(name, stand_in)

    def _lack(self, field: str, problem: str) -> Any:
        self.lacking.setdefault((field, ""), f"{field}: {problem}")
        return STAND_INS[field]


def find_lacking(study: Study, experiment: Experiment, settings: Any) -> list[str]:
    """Messages on the pieces that an experiment asks for and the study lacks.

    Some experiments fail on a stand-in, because they read its values. Then those that they ask for later are not known.
    """
    pieces = LackingPieces(study)
    with suppress(UserError, LookupError):
        experiment.needs(pieces.of_experiment(experiment.id), settings)
    given = study.experiments[experiment.id]
    messages = []
    for (_, name), message in pieces.lacking.items():
        place = next(_find_places(given, name), None) if name else None
        messages.append(message if place is None else f"experiments.{experiment.id}{place}: {message}")
    return messages


def _find_places(settings: Any, name: str) -> Iterator[str]:
    """The fields of an experiment in which the study itself gives this name, such as `.pathway_1`."""
    if isinstance(settings, Mapping):
        items = list(settings.items())
    else:
        items = list(enumerate(settings)) if isinstance(settings, (list, tuple)) else []
    if settings == name:
        yield ""
    for part, value in items:
        yield from (f".{part}{place}" for place in _find_places(value, name))
