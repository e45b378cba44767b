"""The attacks of an evaluation in its recipe, and their estimated cost."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from robustfeatures.attacks.evaluating.settings import PGD, AutoAttack, CarliniWagner, Noise
from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan import identity
from robustfeatures.pipeline.plan.estimates import estimate
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.reach import reach
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.study.study import read_study
from tests.conftest import REPOSITORY

QUICK = PGD(kind="pgd", steps=5, relative_step_sizes=(0.25,))


@pytest.fixture
def pieces() -> Pieces:
    return Pieces(read_study(REPOSITORY / "workflow" / "studies" / "smoke.yaml"))


def under(pieces: Pieces, *attacks: PGD | CarliniWagner | AutoAttack | Noise) -> Recipe:
    return pieces.evaluation(pieces.source_model("standard", 0), eps=(0.0, 0.5), attacks=attacks)


def test_only_the_attacks_that_are_named_enter_a_recipe(pieces: Pieces) -> None:
    every = {"pgd", "cw_l2", "autoattack", "noise"}
    for attacks, modules in (
        ((QUICK,), {"pgd"}),
        ((QUICK, CarliniWagner(kind="cw-l2")), {"pgd", "cw_l2"}),
        ((AutoAttack(kind="autoattack"),), {"autoattack", "noise"}),
    ):
        behind = reach(under(pieces, *attacks).code_entries).modules
        assert {name for name in every if f"robustfeatures.attacks.evaluating.{name}" in behind} == modules


def test_the_version_of_autoattack_enters_the_recipe(pieces: Pieces, monkeypatch: pytest.MonkeyPatch) -> None:
    attacked = under(pieces, AutoAttack(kind="autoattack"))
    found = ".".join(version("pyautoattack").split(".")[:2])
    assert attacked.identity["libraries"]["pyautoattack"] == found
    assert "pyautoattack" not in under(pieces, QUICK).identity["libraries"]
    identity.clear_caches()
    monkeypatch.setattr(identity, "_distributions", lambda library: [library] if library in ("numpy", "torch") else [])
    with pytest.raises(UserError, match=r"^pyautoattack: this Python package is not installed"):
        _ = under(Pieces(pieces.study), AutoAttack(kind="autoattack")).identity
    identity.clear_caches()


def test_other_settings_are_another_attack_by_name() -> None:
    attacks = [
        QUICK,
        PGD(kind="pgd", steps=5, relative_step_sizes=(0.25, 0.5)),
        PGD(kind="pgd", steps=5, relative_step_sizes=(0.25,), random_starts=1),
        CarliniWagner(kind="cw-l2"),
        CarliniWagner(kind="cw-l2", learning_rate=0.02),
        AutoAttack(kind="autoattack"),
        AutoAttack(kind="autoattack", queries=100),
        AutoAttack(kind="autoattack", parts=("apgd-ce",)),
        Noise(kind="noise", draws=5),
    ]
    assert len({attack.name for attack in attacks}) == len(attacks)


def test_an_attack_of_its_own_makes_another_label(pieces: Pieces) -> None:
    """`why` does not take one for an earlier build of the other. Seeds of one row still share a job."""
    own = pieces.evaluation(pieces.source_model("standard", 0), eps=(0.0, 0.5))
    other = under(pieces, QUICK)
    assert own.label != other.label
    assert own.digest != other.digest
    next_seed = pieces.evaluation(pieces.source_model("standard", 1), eps=(0.0, 0.5), attacks=(QUICK,))
    assert next_seed.label.replace("seed1", "seed0") == other.label


def test_what_attacks_are_taken_to_cost_adds_up(pieces: Pieces) -> None:
    def operations(*attacks: PGD | CarliniWagner | AutoAttack | Noise) -> float:
        return estimate(under(pieces, *attacks)).operations

    twice = PGD(kind="pgd", steps=5, relative_step_sizes=(0.25,), random_starts=1)
    search = CarliniWagner(kind="cw-l2", searches=3, steps=7)
    searching = operations(QUICK, search) - operations(QUICK)
    # 21 steps and a look at the gradient against 6.
    assert searching / (operations(twice) - operations(QUICK)) == pytest.approx(22 / 6)
    assert operations(AutoAttack(kind="autoattack")) > 100 * operations(QUICK)
    assert operations(Noise(kind="noise", draws=3)) < operations(QUICK)
