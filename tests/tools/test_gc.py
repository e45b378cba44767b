"""gc removes neither what others need, nor what is young, nor what a job is making, unless it is told to."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from robustfeatures.errors import UserError
from robustfeatures.files import write_json
from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.store.checkouts import FOLDER, list_checkouts, note_needed, register
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.store.sealed import MANIFEST
from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.gc import find_unneeded, studies_here
from tests.conftest import Workspace
from tests.faults.test_machines import publish

WEEK = 7 * 24 * 3600.0
# Keys of payloads.
MINE, NOBODY, OTHER, YOUNG = (letter * 16 for letter in "abcd")
RECIPES: Any = {"model/mine-1": None}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store of payloads that are eight days old."""
    store = Store(tmp_path / "store")
    for key in (MINE, OTHER, NOBODY):
        publish(store, key)
        age(store, key)
    return store


@pytest.fixture
def mine(tmp_path: Path) -> Artifacts:
    artifacts = Artifacts(tmp_path / "mine" / "artifacts")
    write_json(artifacts.reference("model/mine-1"), {"key": MINE, "content": "c", "recipe": {}})
    return artifacts


def age(store: Store, key: str) -> None:
    moment = time.time() - WEEK - 3600
    os.utime(store.payload(key) / MANIFEST, (moment, moment))


def test_what_another_checkout_needs_stays(store: Store, mine: Artifacts, tmp_path: Path) -> None:
    plan = Plan(RECIPES, ())
    register(store.root, tmp_path / "other" / "artifacts", "digits", [OTHER, "not there any more"])
    found = find_unneeded([plan], mine, store)
    assert found.keys(everyone=False) == [NOBODY]
    assert found.keys(everyone=True) == [NOBODY, OTHER]
    (line,) = found.kept()
    assert line.startswith(f"1 payload that {tmp_path}/other/artifacts on ")
    assert "study digits, last seen 20" in line
    # Another study of this checkout is not kept, as long as it is not named and has no results here.
    register(store.root, mine.root, "theory", [NOBODY])
    assert find_unneeded([plan], mine, store).keys(everyone=False) == [NOBODY]
    # It needs no longer what its last plan did not need.
    register(store.root, tmp_path / "other" / "artifacts", "digits", [])
    assert find_unneeded([plan], mine, store).keys(everyone=False) == [NOBODY, OTHER]


def test_what_jobs_made_since_the_last_plan_stays(store: Store, mine: Artifacts, tmp_path: Path) -> None:
    """Also if the run was killed, or is the run of weeks."""
    plan, other = Plan(RECIPES, ()), tmp_path / "other" / "artifacts"
    register(store.root, other, "digits", [])
    note_needed(store.root, other, "digits", OTHER)
    # Another study of that checkout is planned meanwhile.
    register(store.root, other, "theory", [])
    assert find_unneeded([plan], mine, store).keys(everyone=False) == [NOBODY]

    def keys() -> Iterator[str]:
        # A job ends while the study is planned.
        note_needed(store.root, other, "digits", NOBODY)
        yield OTHER

    register(store.root, other, "digits", keys())
    assert find_unneeded([plan], mine, store).keys(everyone=False) == []
    # The study has changed, and needs none of them.
    register(store.root, other, "digits", [])
    assert find_unneeded([plan], mine, store).keys(everyone=False) == [NOBODY, OTHER]


def test_what_a_study_with_results_here_uses_stays(store: Store, mine: Artifacts, tmp_path: Path) -> None:
    studies = tmp_path / "studies"
    studies.mkdir()
    for name in ("built", "planned"):
        (studies / f"{name}.yaml").touch()
    write_json(mine.root.parent / "built" / "claims.csv", [])
    (mine.root.parent / "planned").mkdir()
    write_json(mine.root.parent / "gone" / "claims.csv", [])
    assert studies_here(Artifacts(mine.root), studies, store) == ["built"]
    # A run that has no figure yet, and one in another checkout.
    register(store.root, mine.root, "planned", [])
    register(store.root, tmp_path / "other" / "artifacts", "other", [])
    (studies / "other.yaml").touch()
    assert studies_here(Artifacts(mine.root), studies, store) == ["built", "planned"]
    write_json(mine.reference("model/nobody-1"), {"key": NOBODY, "content": "c", "recipe": {}})
    # It is kept as far as it is built.
    partly: Any = {"model/nobody-1": None, "model/not-built-1": None}
    found = find_unneeded([Plan(RECIPES, ())], mine, store, with_results=[Plan(partly, ())])
    assert found.keys(everyone=True) == [OTHER]
    with pytest.raises(UserError, match=r"not-built-1\.json: not built yet"):
        find_unneeded([Plan(partly, ())], mine, store)


def test_what_a_study_needed_before_a_change_stays_until_all_is_built_again(
    store: Store, mine: Artifacts, tmp_path: Path
) -> None:
    """After an edit of the code no artifact of the plan has a reference. The edit may be undone, or accepted."""
    view: Any = SimpleNamespace(study="mine")
    edited: Any = {"model/mine-2": None}
    register(store.root, mine.root, "mine", [MINE])
    note_needed(store.root, mine.root, "mine", OTHER)
    gone = find_unneeded([], mine, store, with_results=[Plan(edited, (view,))])
    assert gone.keys(everyone=False) == [NOBODY]
    assert list(gone.kept()) == ["2 payloads that studies here needed before a change; not all is built again yet"]
    assert gone.keys(everyone=True) == [MINE, NOBODY, OTHER]
    # A dry run after the edit forgets none of it, neither here nor for a colleague.
    for _ in range(2):
        register(store.root, mine.root, "mine", [], is_whole=False)
        assert [one.keys for one in list_checkouts(store.root)] == [(MINE, OTHER)]
    colleague = Artifacts(tmp_path / "colleague" / "artifacts")
    assert find_unneeded([], colleague, store).keys(everyone=False) == [NOBODY]
    # Nor does the loss of the references, and of the token with them.
    shutil.rmtree(mine.root)
    register(store.root, mine.root, "mine", [], is_whole=False)
    assert [one.keys for one in list_checkouts(store.root)] == [(MINE, OTHER)]
    # When the changed study is built, its earlier payloads are free.
    write_json(mine.reference("model/mine-2"), {"key": NOBODY, "content": "c", "recipe": {}})
    built = find_unneeded([], mine, store, with_results=[Plan(edited, (view,))])
    assert built.keys(everyone=False) == [MINE, OTHER]
    register(store.root, mine.root, "mine", [NOBODY], is_whole=True)
    assert [one.keys for one in list_checkouts(store.root)] == [(NOBODY,)]


def test_a_checkout_that_was_moved_is_no_other_one(store: Store, tmp_path: Path) -> None:
    before, after, copy = (Artifacts(tmp_path / name / "artifacts") for name in ("before", "after", "copy"))
    before.root.mkdir(parents=True)
    register(store.root, before.root, "mine", [MINE])
    shutil.copytree(before.root.parent, copy.root.parent)
    before.root.parent.rename(after.root.parent)
    # What was needed before stays, because not all is built.
    register(store.root, after.root, "mine", [OTHER], is_whole=False)
    assert [(one.path, one.keys) for one in list_checkouts(store.root)] == [(str(after.root), (MINE, OTHER))]
    # A copy is another one while both are there.
    register(store.root, copy.root, "mine", [MINE])
    assert {one.path for one in list_checkouts(store.root)} == {str(after.root), str(copy.root)}


def test_an_edit_of_the_code_costs_no_result(built: Workspace) -> None:
    """All payloads are a week old, and the study is not that of config.yaml."""
    built.edit("config.yaml", "study: smoke", "study: digits")
    store = Store(built.store)
    for key in store.payload_keys():
        age(store, key)
    before = built.payloads()
    path = built.folder / "src" / "robustfeatures" / "data" / "raw.py"
    path.write_text(f"{path.read_text()}\n\ndef added() -> int:\n    return 1\n")
    for _ in range(2):
        done = built.command("gc", "--delete")
        assert "kept: what the studies that were planned here use: smoke" in done.stdout
        assert built.payloads() == before
        built.snakemake("-n", "--config", "study=smoke")


def test_what_a_checkout_needed_before_its_references_were_removed(
    store: Store, mine: Artifacts, tmp_path: Path
) -> None:
    """`rm -r results/artifacts` takes the token too. What other studies and other checkouts need stays."""
    register(store.root, mine.root, "digits", [OTHER])
    note_needed(store.root, mine.root, "digits", OTHER)
    register(store.root, mine.root, "smoke", [YOUNG])
    register(store.root, tmp_path / "other", "digits", [NOBODY])
    shutil.rmtree(mine.root)
    register(store.root, mine.root, "digits", [MINE])
    kept = {one.keys for one in list_checkouts(store.root)}
    assert kept == {(MINE,), (NOBODY,), (YOUNG,)}
    assert not list((store.root / FOLDER).rglob(OTHER))


def test_the_same_path_on_another_machine_is_another_checkout(store: Store, mine: Artifacts) -> None:
    register(store.root, mine.root, "digits", [OTHER])
    (path,) = (store.root / FOLDER).glob("*.json")
    elsewhere = {**json.loads(path.read_text()), "token": "0" * 16, "host": "elsewhere"}
    write_json(path.with_name("elsewhere.json"), elsewhere)
    register(store.root, mine.root, "digits", [])
    assert find_unneeded([Plan(RECIPES, ())], mine, store).keys(everyone=False) == [NOBODY]


def test_what_is_young_or_being_made_stays(store: Store, mine: Artifacts) -> None:
    publish(store, YOUNG)
    with store.lease(NOBODY):
        found = find_unneeded([Plan(RECIPES, ())], mine, store)
    assert found.keys(everyone=False) == [OTHER]
    assert found.keys(everyone=True) == [OTHER, YOUNG]
    assert list(found.kept()) == ["1 payload younger than 7 days"]


def test_a_damaged_list_is_one_line(store: Store, mine: Artifacts) -> None:
    register(store.root, mine.root, "digits", [])
    (path,) = (store.root / FOLDER).glob("*.json")
    path.write_text("[]")
    with pytest.raises(UserError, match=rf"{path.name}: damaged; remove it"):
        find_unneeded([Plan(RECIPES, ())], mine, store)


def test_every_plan_is_recorded(built: Workspace) -> None:
    built.snakemake("-n")
    checkouts = [one for one in list_checkouts(built.store) if one.is_at(built.folder / "results/artifacts")]
    (checkout,) = checkouts
    assert checkout.study == "smoke"
    assert set(checkout.keys) == set(Store(built.store).payload_keys())
