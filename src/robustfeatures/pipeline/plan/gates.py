"""The measurements behind the gates of a study."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from robustfeatures.attacks.evaluating.settings import Noise
from robustfeatures.derived.settings import Derived, TargetedAttack
from robustfeatures.experiments.shared.attack_success import add_shares, make_attack_success
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.training.settings import Model

if TYPE_CHECKING:
    import pandas as pd

# The kinds of gates: their fields in a study, and what messages call what they measure.
CLEAN_ACCURACY, ATTACK_SUCCESS = "clean_accuracy", "attack_success"
NAMES = {CLEAN_ACCURACY: "clean accuracy", ATTACK_SUCCESS: "attack success"}
# An evaluation names attacks, also without a radius. This one never runs.
UNUSED = Noise(kind="noise", draws=1)


@dataclass(frozen=True)
class Gate:
    """What one network or derived set must reach, in percent, and the recipe that measures it."""

    kind: str
    subject: str
    least: float
    measured: Recipe

    def record(self) -> dict[str, Any]:
        """The gate as JSON values."""
        return {"kind": self.kind, "subject": self.subject, "least": self.least, "artifact": self.measured.name}


def find_gates(pieces: Pieces, recipes: Iterable[Recipe]) -> Iterator[Gate]:
    """The gates on the networks and derived sets among the given recipes and those that they build on."""
    found: dict[str, Recipe] = {}
    for recipe in recipes:
        recipe.collect(found)
    for recipe in found.values():
        yield from _gates_on_network(pieces, recipe)
        yield from _gates_on_attack(pieces, recipe)


def _gates_on_network(pieces: Pieces, recipe: Recipe) -> Iterator[Gate]:
    """A network is known by its training, data and architecture; label and probes may be an experiment's own."""
    parameters = recipe.parameters
    if not isinstance(parameters, Model) or parameters.architecture != pieces.study.architecture:
        return
    for name, least in pieces.study.gates.clean_accuracy.items():
        if parameters.training == pieces.training(name) and recipe.inputs["data"].digest == pieces.data().digest:
            measured = pieces.evaluation(recipe, eps=(0.0,), attacks=(UNUSED,), norm="l2")
            yield Gate(CLEAN_ACCURACY, recipe.label, least, measured)


def _gates_on_attack(pieces: Pieces, recipe: Recipe) -> Iterator[Gate]:
    if not isinstance(recipe.parameters, Derived) or not isinstance(recipe.parameters.method, TargetedAttack):
        return
    for name, least in pieces.study.gates.attack_success.items():
        if recipe.family == f"{pieces.data().label}-{name}":
            measured = make_attack_success(pieces, name, recipe, recipe.inputs["source"], recipe.parameters.seed)
            yield Gate(ATTACK_SUCCESS, recipe.label, least, measured)


def describe_failure(gate: Mapping[str, Any], rows: pd.DataFrame) -> str | None:
    """A line on a gate's record if its measurement has less than the gate asks for, else None.

    `rows` are those of the recipe that measures it.
    """
    if gate["kind"] == CLEAN_ACCURACY:
        (reached,) = percent(rows["correct"] / rows["total"])
    else:
        (reached,) = add_shares(rows[rows["augmentation"] == "none"])["success"]
    # A share such as 849 of 1000 is no exact binary number.
    if reached > gate["least"] - 1e-9:
        return None
    return f"{gate['subject']}: {NAMES[gate['kind']]} of {reached:.1f} %, and the study asks for {gate['least']:g} %"
