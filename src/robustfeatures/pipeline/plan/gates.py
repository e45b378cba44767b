"""Which gates of a study are on an experiment, and the measurements behind them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from robustfeatures.derived.settings import Derived
from robustfeatures.errors import UserError
from robustfeatures.experiments.shared.attack_success import make_attack_success
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.study.parameters import Measurement
from robustfeatures.training.settings import Model

CLEAN_ACCURACY, ATTACK_SUCCESS = "clean_accuracy", "attack_success"


@dataclass(frozen=True)
class Gate:
    """What one network or derived set must reach, in percent, and the recipe that measures it.

    `kind` and `name` are those of the gate in the study; `subject` is the label of the network or derived set.
    """

    kind: str
    name: str
    subject: str
    least: float
    measured: Recipe

    def record(self) -> dict[str, Any]:
        """The gate as JSON values."""
        return {"kind": self.kind, "subject": self.subject, "least": self.least, "artifact": self.measured.name}


def find_gates(pieces: Pieces, recipes: Iterable[Recipe]) -> list[Gate]:
    """The gates on the networks and derived sets among the needs of an experiment and all that these build on.

    An experiment may itself need the measurement of an attack's success. Then this attack has no gate, because the
    claims of the experiment judge it.
    """
    found: dict[str, Recipe] = {}
    for recipe in recipes:
        recipe.collect(found)
    measured = {_what_is_measured(recipe) for recipe in found.values()} - {None}
    original = _original_data(pieces)
    gates = [gate for recipe in found.values() for gate in _gates_on(pieces, recipe, original)]
    return [gate for gate in gates if _what_is_measured(gate.measured) not in measured]


def check_all_used(pieces: Pieces, gates: Iterable[Gate]) -> None:
    """Check that each gate of a study is on something that its experiments use.

    Raises:
        UserError: one is not, and would say nothing.
    """
    used = {(gate.kind, gate.name) for gate in gates}
    for kind, named in (
        (CLEAN_ACCURACY, pieces.study.gates.clean_accuracy),
        (ATTACK_SUCCESS, pieces.study.gates.attack_success),
    ):
        for name in named:
            if (kind, name) not in used:
                what = "a network trained so on original data" if kind == CLEAN_ACCURACY else "this derived set"
                raise UserError(f"gates.{kind}.{name}: no experiment of the study uses {what}")


def _gates_on(pieces: Pieces, recipe: Recipe, original: Sequence[Recipe]) -> Iterator[Gate]:
    gates = pieces.study.gates
    if isinstance(recipe.parameters, Model) and gates.clean_accuracy:
        data = recipe.inputs["data"]
        # An experiment may give a network a label and probes of its own.
        is_the_studys = recipe.parameters.architecture == pieces.study.architecture
        if is_the_studys and data.digest in [known.digest for known in original]:
            for name, least in gates.clean_accuracy.items():
                if recipe.parameters.training == pieces.training(name):
                    measured = pieces.clean_evaluation(recipe, data=data)
                    yield Gate(CLEAN_ACCURACY, name, recipe.label, least, measured)
    if isinstance(recipe.parameters, Derived):
        for name, least in gates.attack_success.items():
            if recipe.family in [f"{data.label}-{name}" for data in original]:
                seed = recipe.parameters.seed
                measured = make_attack_success(pieces, recipe.family, recipe, recipe.inputs["source"], seed)
                yield Gate(ATTACK_SUCCESS, name, recipe.label, least, measured)


def _original_data(pieces: Pieces) -> Sequence[Recipe]:
    """The original data sets that the study names."""
    names = [*(["D"] if pieces.study.data is not None else []), *pieces.study.other_data]
    return [pieces.data(name) for name in names]


def _what_is_measured(recipe: Recipe) -> tuple[str, ...] | None:
    """The module of a measurement and the digests of its inputs; None for other stages."""
    if not isinstance(recipe.parameters, Measurement):
        return None
    return recipe.parameters.module, *(recipe.inputs[name].digest for name in sorted(recipe.inputs))
