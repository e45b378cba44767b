"""What experiments receive: evaluations, together and by attack, and the published values of their setting."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from robustfeatures.attacks.evaluating.settings import PGD, Evaluation, Noise
from robustfeatures.files import write_json
from robustfeatures.pipeline.plan.canonical import to_json
from robustfeatures.pipeline.report.building import (
    ViewJob,
    add_attack_names,
    place_outcomes,
    read_results,
    split_by_attack,
)
from robustfeatures.pipeline.report.study_facts import read_facts
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.store.store import Store
from tests.stores import publish_files

INVERSION = {"kind": "inversion", "start": "images", "step_size": 0.1, "steps": 5}
ATTACKS = (PGD(kind="pgd", steps=3, relative_step_sizes=(0.5,)), Noise(kind="noise", draws=2))


def read(rows: list[tuple[float, int, int]], attacks: int) -> pd.DataFrame:
    """Rows (eps, attacks, correct) of an evaluation that runs the first `attacks` attacks."""
    frame = pd.DataFrame(rows, columns=["eps", "attacks", "correct"]).assign(total=10, most_frequent=3)
    return add_attack_names(frame, [attack.name for attack in ATTACKS[:attacks]])


def test_evaluations_with_different_numbers_of_attacks() -> None:
    first = read([(0.0, 0, 9), (0.5, 1, 6), (0.5, 2, 4)], attacks=2).assign(row="first")
    second = read([(0.0, 0, 8), (0.5, 1, 5)], attacks=1).assign(row="second")
    together, single = split_by_attack(pd.concat([first, second], ignore_index=True))
    added = ["accuracy", "chance", "learned"]
    assert list(together.columns) == ["eps", "correct", "total", "most_frequent", "row", *added]
    assert set(together["chance"]) == {30.0}
    assert [(row.row, row.eps, row.accuracy) for row in together.itertuples()] == [
        ("first", 0.0, 90.0),
        ("first", 0.5, 40.0),
        ("second", 0.0, 80.0),
        ("second", 0.5, 50.0),
    ]
    assert list(single.columns) == ["eps", "attack", "correct", "total", "most_frequent", "row", *added]
    assert [(row.row, row.attack, row.accuracy) for row in single.itertuples()] == [
        ("first", ATTACKS[0].name, 60.0),
        ("first", ATTACKS[1].name, 40.0),
        ("second", ATTACKS[0].name, 50.0),
    ]


def test_a_network_counts_once_although_the_plan_of_another_study_names_it_otherwise(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path / "artifacts")
    network, evaluation = "1" * 16, "2" * 16
    for label in ("standard", "std"):
        recipe = {"stage": "model", "label": label, "digest": network, "inputs": {}}
        write_json(artifacts.plan(f"model/{label}-{network}"), recipe)
    attacked = {"stage": "evaluation", "label": "a", "digest": evaluation}
    # The plan of the other study was written last.
    write_json(artifacts.plan(f"evaluation/a-{evaluation}"), {**attacked, "inputs": {"model": f"model/std-{network}"}})
    for name in (f"model/standard-{network}", f"evaluation/a-{evaluation}"):
        reference = {"key": name, "content": "c", "recipe": {}, "stage": name.partition("/")[0]}
        write_json(artifacts.reference(name), reference)
    needs = [{"artifact": f"evaluation/a-{evaluation}"}, {"artifact": f"model/standard-{network}"}]
    view = ViewJob({"parts": [{"needs": needs, "gates": []}], "views": []}, artifacts, Store(tmp_path / "store"))
    assert read_facts(view).made == ["1 trained network", "1 evaluation under attack"]


def test_each_file_of_a_need_becomes_rows_in_percent_and_outcomes_of_its_images(tmp_path: Path) -> None:
    """Two evaluations of the same images, one of other images, and a training."""
    store, artifacts = Store(tmp_path / "store"), Artifacts(tmp_path / "artifacts")
    parameters = to_json(Evaluation(split="test", norm="l2", attacks=ATTACKS[:1], eps=(0.0, 0.5)))
    columns = b"metric,label_shift,eps,attacks,correct,total,classes,most_frequent\n"
    rows = columns + b"accuracy,0,0.0,0,9,10,2,5\naccuracy,0,0.5,1,6,10,2,5\n"
    history = b"epoch,probe,network,value,loss,images\n1,test,itself,0.25,1.0,10\n"
    needs = []
    for row, data in (("a", "data/D-0"), ("b", "data/D-0"), ("c", "data/other-0"), ("curve", None)):
        stage = "evaluation" if data else "model"
        files = {"rows.csv": rows, "robust.npy": row.encode()} if data else {"history.csv": history}
        publish_files(store, row, files)
        recipe = {"parameters": parameters, "inputs": {"data": data, "model": f"model/{row}-0"}}
        reference = {"key": row, "content": "content", "stage": stage, "recipe": recipe}
        write_json(artifacts.reference(f"{stage}/{row}-0"), reference)
        needs.append({"row": row, "seed": 3, "artifact": f"{stage}/{row}-0", "columns": {"extra": row * 2}})
    part = {"id": "A1", "needs": needs, "gates": [], "settings": {}}
    record = {"study": "study", "parts": [part], "published_setting": None, "reduced": False}
    ((_, results),) = ViewJob(record, artifacts, store).experiments()
    found = results.evaluations
    assert list(zip(found["row"], found["seed"], found["extra"], found["accuracy"], strict=True)) == [
        (row, 3, row * 2, accuracy) for row in "abc" for accuracy in (90.0, 60.0)
    ]
    assert list(results.histories["accuracy"]) == [25.0]
    assert [(each.images, each.path.read_text(), each.rows) for each in results.images] == [
        ("data/D-0, test", "a", range(2)),
        ("data/D-0, test", "b", range(2, 4)),
        ("data/other-0, test", "c", range(4, 6)),
    ]


def test_names_that_look_like_numbers_or_missing_values_stay_text(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("source,target,total,rate,note\n001,NA,1,nan,\nNone,1e5,2,inf,x\ntrue,,3,,NA\n")
    found = read_results(tmp_path / "rows.csv")
    assert list(found.columns) == ["source", "target", "total", "rate", "note"]
    assert list(found["source"]) == ["001", "None", "true"]
    assert list(found["target"]) == ["NA", "1e5", ""]
    # Other columns are read as before.
    pd.testing.assert_frame_equal(found.iloc[:, 2:], pd.read_csv(tmp_path / "rows.csv").iloc[:, 2:])
    assert [*found["rate"].isna(), found["rate"][1]] == [True, False, True, float("inf")]


def test_rows_stay_where_their_outcomes_are() -> None:
    """The index of a row in either table is its place in the files, one after the other."""
    first = read([(0.0, 0, 9), (0.5, 1, 6), (0.5, 2, 4)], attacks=2)
    second = read([(0.0, 0, 8), (0.5, 1, 5)], attacks=1)
    files = [("D, test", Path("first.npy")), ("D, test", Path("second.npy"))]
    found = place_outcomes([first, second], files)
    assert [(each.path.name, list(each.rows), each.total) for each in found] == [
        ("first.npy", [0, 1, 2], 10),
        ("second.npy", [3, 4], 10),
    ]
    together, single = split_by_attack(pd.concat([first, second], ignore_index=True))
    correct = [9, 6, 4, 8, 5]
    for rows in (together, single):
        assert [correct[place] for place in rows.index] == list(rows["correct"])
    # An evaluation that keeps no outcomes leaves all without.
    assert place_outcomes([first, second], files[:1]) == []


@pytest.mark.parametrize("reduced", [False, True])
def test_a_reduced_study_shows_its_setting_and_compares_nothing(tmp_path: Path, reduced: bool) -> None:
    part = {"id": "D3", "needs": [], "gates": [], "settings": {"eps": 0.1, "inversion": INVERSION}}
    record = {"study": "study", "parts": [part], "published_setting": "CIFAR-10", "reduced": reduced}
    ((_, results),) = ViewJob(record, Artifacts(tmp_path / "artifacts"), Store(tmp_path / "store")).experiments()
    assert results.published is not None
    assert results.published_setting == "CIFAR-10"
    assert 91.79 in set(results.published["accuracy"])
    assert "setting" not in results.published
    assert (results.comparable_rows is None) == reduced
