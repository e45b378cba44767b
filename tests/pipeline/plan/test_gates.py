"""Gates: which experiments they are on, what fails them, and what the claims then say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.gates import ATTACK_SUCCESS, CLEAN_ACCURACY, describe_failure, find_gates
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.gates import Gates
from robustfeatures.pipeline.study.study import make_study, read_study
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.conftest import REPOSITORY
from tests.in_process import built_study

STUDIES = REPOSITORY / "workflow" / "studies"


def gates_of(study: str) -> dict[str, set[tuple[str, str]]]:
    """The kind and the subject of all gates on each experiment of a study; no seeds."""
    plan = unfold(Config(study=study), STUDIES)
    parts = {view.parts[0].experiment.id: view.parts[0] for view in plan.views if view.kind == "table"}
    return {
        name: {(gate.kind, gate.subject.rpartition("-seed")[0]) for gate in part.gates} for name, part in parts.items()
    }


def test_a_gate_is_on_all_that_builds_on_its_subject() -> None:
    found = gates_of("not-bugs-cifar10-cpu")
    standard, adversarial = ((CLEAN_ACCURACY, f"cifar10-{name}") for name in ("standard", "adversarial"))
    rand, det = ((ATTACK_SUCCESS, f"cifar10-{name}") for name in ("D_rand", "D_det"))
    assert found["A4"] == {adversarial}
    assert found["B1"] == {standard, det}
    assert found["A2"] == {standard, adversarial, rand, det}
    assert found["A7"] == {standard, adversarial, det}
    # Its source is robust, and such an attack may fail.
    assert not any(subject.endswith("D_det-robust") for gates in found.values() for _, subject in gates)
    # The experiments of at-odds-2019 give the networks labels of their own.
    assert {subject for _, subject in gates_of("at-odds-cifar10-cpu")["C2"]} == {"cifar10-standard-against-standard"}
    assert not any(gates_of("smoke").values())


def test_a_network_of_another_size_or_on_other_data_has_no_gate() -> None:
    study = read_study(STUDIES / "digits-full.yaml")
    pieces = Pieces(replace(study, gates=Gates(clean_accuracy={"standard": 50.0})))
    other = pieces.source_model("standard", 0, architecture=next(iter(study.other_architectures)))
    own = pieces.model("own label", "standard", 0, {"data": pieces.data_with("same images", ())})
    elsewhere = pieces.model("m", "standard", 0, {"data": pieces.derived("D_det", 0)})
    assert [gate.subject for gate in find_gates(pieces, [other])] == []
    assert [gate.subject for gate in find_gates(pieces, [own])] == ["own label-seed0"]
    assert [gate.subject for gate in find_gates(pieces, [elsewhere])] == [f"{pieces.data().label}-standard-seed0"]


def test_less_than_a_gate_asks_for_fails_it() -> None:
    accuracy = {"kind": CLEAN_ACCURACY, "subject": "network", "least": 85.0}
    rows = pd.DataFrame([{"eps": 0.0, "correct": 849, "total": 1000}])
    assert describe_failure(accuracy, rows) == "network: clean accuracy of 84.9 %, and the study asks for 85 %"
    assert describe_failure({**accuracy, "least": 84.9}, rows) is None
    success = {"kind": ATTACK_SUCCESS, "subject": "set", "least": 60.0}
    counts = {"images": 10, "targeted": 5, "kept": 0}
    measured = pd.DataFrame(
        [{**counts, "augmentation": "none", "reached": 3}, {**counts, "augmentation": "augmented", "reached": 0}]
    )
    assert describe_failure(success, measured) is None
    assert describe_failure({**success, "least": 61.0}, measured) is not None


@pytest.mark.parametrize(
    ("gates", "message"),
    [
        ({"clean_accuracy": {"standrad": 85}}, r"gates\.clean_accuracy: 'standrad' is no training.*standard"),
        (
            {"attack_success": {"D_NR-noise": 60}},
            r"gates\.attack_success: 'D_NR-noise' is no derived set made by",
        ),
        ({"clean_accuracy": {"standard": 101}}, r"gates\.clean_accuracy\.standard"),
    ],
)
def test_wrong_gates_are_refused(gates: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_study({**read_yaml(STUDIES / "smoke.yaml"), "gates": gates}, STUDIES)


def test_claims_behind_a_failed_gate_are_not_tested(tmp_path: Path) -> None:
    """Two epochs do not reach 100 %. A13 builds on no network, and every attack succeeds on no image or more."""
    smoke = read_yaml(STUDIES / "smoke.yaml")
    gates = {"clean_accuracy": {"standard": 100.0}, "attack_success": {"D_det": 0.0}}
    toy = read_yaml(STUDIES / "theory.yaml")["experiments"]["A13"]
    _, folder = built_study(tmp_path, {**smoke, "gates": gates, "experiments": {"A7": {}, "A13": toy}})
    claims = pd.read_csv(folder / "claims.csv").set_index("experiment")
    assert set(claims.loc["A7", "verdict"]) == {"not tested"}
    assert claims.loc["A7", "quantity"].str.contains("; not tested: digits-standard-seed0: clean accuracy of ").all()
    assert claims.loc["A7", "value"].notna().all()
    assert not claims.loc["A13", "quantity"].str.contains("not tested").any()
    table = (folder / "tables" / "A7.md").read_text()
    assert "no claim of this experiment is tested" in table
    assert "attack success" not in table
