"""Gates: which experiments they are on, what fails them, and what the claims then say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.gates import ATTACK_SUCCESS, CLEAN_ACCURACY, find_gates
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.plan import Plan, unfold
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.report.gates import describe_failure, describe_failures
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.gates import Gates
from robustfeatures.pipeline.study.study import make_study, read_study
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.conftest import REPOSITORY
from tests.in_process import built_study

STUDIES = REPOSITORY / "workflow" / "studies"


def gates_of(plan: Plan) -> dict[str, set[tuple[str, str]]]:
    """The kind and the subject of all gates on each experiment of a study; no seeds."""
    parts = {view.parts[0].experiment.id: view.parts[0] for view in plan.views if view.kind == "table"}
    return {
        name: {(gate.kind, gate.subject.rpartition("-seed")[0]) for gate in part.gates} for name, part in parts.items()
    }


def test_a_gate_is_on_all_that_builds_on_its_subject() -> None:
    plan = unfold(Config(study="not-bugs-cifar10-cpu"), STUDIES)
    found = gates_of(plan)
    standard, adversarial = ((CLEAN_ACCURACY, f"cifar10-{name}") for name in ("standard", "adversarial"))
    rand, det = ((ATTACK_SUCCESS, f"cifar10-{name}") for name in ("D_rand", "D_det"))
    assert found["A4"] == {adversarial}
    assert found["B1"] == {standard, det}
    assert found["A2"] == {standard, adversarial, rand, det}
    assert found["A7"] == {standard, adversarial, det}
    # X5 judges the attacks, so that their failure is its result.
    assert found["X5"] == {standard, adversarial}
    # The source of D_det-robust is robust, and such an attack may fail.
    assert not any(subject.endswith("D_det-robust") for gates in found.values() for _, subject in gates)
    for view in plan.views:
        measured = {gate.measured.name for part in view.parts for gate in part.gates}
        assert measured <= set(view.inputs)
        assert measured <= set(plan.recipes)
        assert measured or view.kind == "report" or view.parts[0].experiment.id in ("A10", "X1")


@pytest.mark.parametrize(
    ("study", "experiment", "subjects"),
    [
        ("two-pathways-cifar10-cpu", "B3", {"cifar10-standard", "cifar10-D_det"}),
        # The experiments of at-odds-2019 give the networks labels of their own.
        ("at-odds-cifar10-cpu", "C2", {"cifar10-standard-against-standard"}),
        (
            "feature-averaging-cpu",
            "E4",
            {"cifar10-standard", "cifar10-halves-standard", "mnist-on-mnist", "mnist-parity-on-mnist"},
        ),
        ("smoke", "A2", set()),
    ],
)
def test_networks_are_known_by_training_and_data(study: str, experiment: str, subjects: set[str]) -> None:
    found = gates_of(unfold(Config(study=study), STUDIES))[experiment]
    assert {subject for _, subject in found} == subjects


def test_equal_gates_are_one() -> None:
    """In two-pathways-2021 the trainings of the source and of the normal network are the same."""
    plan = unfold(Config(study="two-pathways-cifar10-cpu"), STUDIES)
    (view,) = (view for view in plan.views if view.kind == "table" and view.parts[0].experiment.id == "B4")
    subjects = [gate["subject"] for gate in view.record["parts"][0]["gates"]]
    assert subjects
    assert len(subjects) == len(set(subjects))


def test_a_network_of_another_size_or_on_other_data_has_no_gate() -> None:
    study = read_study(STUDIES / "digits-full.yaml")
    pieces = Pieces(replace(study, gates=Gates(clean_accuracy={"standard": 50.0})))

    def subjects(recipe: Recipe) -> list[str]:
        return [gate.subject for gate in find_gates(pieces, [recipe])]

    other = pieces.source_model("standard", 0, architecture=next(iter(study.other_architectures)))
    own = pieces.model("own label", "standard", 0, {"data": pieces.data_with("same images", ())})
    elsewhere = pieces.model("m", "standard", 0, {"data": pieces.derived("D_det", 0)})
    assert subjects(other) == []
    assert subjects(own) == ["own label-seed0"]
    assert subjects(elsewhere) == [f"{pieces.data().label}-standard-seed0"]


def test_less_than_a_gate_asks_for_fails_it() -> None:
    accuracy = {"kind": CLEAN_ACCURACY, "subject": "network", "least": 85.0}
    rows = pd.DataFrame([{"eps": 0.0, "correct": 849, "total": 1000}])
    assert describe_failure(accuracy, rows) == "network: clean accuracy of 84.90 %, and the study asks for 85 %"
    assert describe_failure({**accuracy, "least": 84.9}, rows) is None
    success = {"kind": ATTACK_SUCCESS, "subject": "set", "least": 60.0}
    counts = {"images": 10, "targeted": 5, "kept": 0}
    measured = pd.DataFrame(
        [{**counts, "augmentation": "none", "reached": 3}, {**counts, "augmentation": "augmented", "reached": 0}]
    )
    assert describe_failure(success, measured) is None
    assert describe_failure({**success, "least": 61.0}, measured) is not None
    # No image has another target than its class.
    assert describe_failure(success, measured.assign(targeted=0, reached=0)) is not None
    assert describe_failures(["one"]) == "not tested, because of one"
    assert describe_failures(["one", "two", "three"]) == "not tested, because of one and 2 more"


@pytest.mark.parametrize(
    ("gates", "message"),
    [
        ({"clean_accuracy": {"standrad": 85}}, r"gates\.clean_accuracy\.standrad: is no training.*standard"),
        (
            {"attack_success": {"D_NR-noise": 60}},
            r"gates\.attack_success\.D_NR-noise: is no derived set made by",
        ),
        ({"clean_accuracy": {"standard": 101}}, r"gates\.clean_accuracy\.standard"),
    ],
)
def test_wrong_gates_are_refused(gates: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_study({**read_yaml(STUDIES / "smoke.yaml"), "gates": gates}, STUDIES)


def test_a_gate_on_nothing_is_refused(tmp_path: Path) -> None:
    study = {**read_yaml(STUDIES / "smoke.yaml"), "gates": {"clean_accuracy": {"pathway-1": 50}}}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(study))
    with pytest.raises(UserError, match=r"own\.yaml: gates\.clean_accuracy\.pathway-1: no experiment .* uses a"):
        unfold(Config(study="own"), tmp_path)


def test_claims_behind_failed_gates_are_not_tested(tmp_path: Path) -> None:
    """Two epochs do not reach 100 %, and an attack of no size reaches few targets. A13 builds on no network."""
    smoke = read_yaml(STUDIES / "smoke.yaml")
    smoke["derived"]["D_det"]["method"]["eps"] = 1e-3
    gates = {"clean_accuracy": {"standard": 100.0, "adversarial": 0.0}, "attack_success": {"D_det": 100.0}}
    toy = read_yaml(STUDIES / "theory.yaml")["experiments"]["A13"]
    _, folder = built_study(tmp_path, {**smoke, "gates": gates, "experiments": {"A7": {}, "A13": toy}})
    claims = pd.read_csv(folder / "claims.csv").set_index("experiment")
    assert set(claims.loc["A7", "verdict"]) == {"not tested"}
    assert claims.loc["A7", "quantity"].str.contains("; not tested, because of digits-standard-seed0: clean acc").all()
    assert claims.loc["A7", "quantity"].str.endswith(" and 1 more").all()
    assert claims.loc["A7", "value"].notna().all()
    assert claims.loc["A7", ["low", "high", "interval", "margin"]].isna().all(axis=None)
    assert not claims.loc["A13", "quantity"].str.contains("not tested").any()
    for shown in ("tables/A7.md", "figures/A7.txt"):
        text = (folder / shown).read_text()
        assert text.count("no claim of this experiment is tested") == 2
        assert "digits-D_det-seed0: attack success of " in text
        assert "adversarial-seed0: clean" not in text
