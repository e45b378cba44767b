"""`robustfeatures accept`: kept payloads stand for what other code makes, if a sample made again has their bytes."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from robustfeatures.attacks import l2
from robustfeatures.errors import StoppedError, UserError
from robustfeatures.pipeline.plan import identity, reach
from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.plan.tasks import make_tasks
from robustfeatures.pipeline.run.job import Environment, build
from robustfeatures.pipeline.store.references import read_reference
from robustfeatures.pipeline.store.store import discard
from robustfeatures.pipeline.study.yaml import read_yaml
from robustfeatures.tools.accept import find_candidates
from robustfeatures.tools.gc import find_unneeded, leftovers
from robustfeatures.tools.show import show
from robustfeatures.tools.verify import verify
from robustfeatures.tools.why import why
from tests.conftest import REPOSITORY
from tests.in_process import built_study
from tests.tools.workplace import CONFIG, Workplace, workplace_of


def small_study() -> dict[str, Any]:
    """Two networks, one of them adversarial, two sets derived with each, networks trained on these, and all stages."""
    study = read_yaml(REPOSITORY / "workflow" / "studies" / "smoke.yaml")
    study["architecture"]["width"] = 4
    for training in study["training"].values():
        training |= {"epochs": 1, "schedule": "constant"}
        training.pop("milestones", None)
    study["derived"] = {name: study["derived"][name] for name in ("D_rand", "D_det", "D_rand-robust", "D_det-robust")}
    for derived in study["derived"].values():
        derived["splits"] = ["train"]
        derived["method"]["steps"] = 2
    study["robustness"] |= {"attacks": [{"kind": "pgd", "steps": 2, "relative_step_sizes": [0.5]}], "eps": [0.5]}
    study["experiments"] = {"A7": {}, "X5": {}}
    return dict(study)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("accepted")
    built_study(folder, small_study())
    return folder


@pytest.fixture
def workplace(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workplace]:
    with workplace_of(built, tmp_path, monkeypatch) as found:
        yield found


def test_after_a_refactoring_nothing_is_computed(workplace: Workplace) -> None:
    assert workplace.lacking(workplace.plan()) == []
    payloads = workplace.store.payload_keys()
    workplace.refactor("engine/batches.py")
    plan = workplace.plan()
    lacking = workplace.lacking(plan)
    assert Counter(plan.recipes[name].stage.name for name in lacking) == Counter(
        recipe.stage.name for recipe in plan.recipes.values() if recipe.stage.name != "data"
    )
    codes = {(recipe.stage.name, recipe.identity["code"]) for recipe in map(plan.recipes.__getitem__, lacking)}
    # One for each stage, and for a training with an adversary.
    assert len(codes) == 5
    lines = workplace.accept()
    assert sum(line.startswith("the same bytes: ") for line in lines) == 5
    assert lines[-1].startswith(f"accepted {len(lacking)} artifacts, 5 made again, for 5 pairs of old and new code: ")
    plan = workplace.plan()
    assert workplace.lacking(plan) == []
    assert workplace.store.payload_keys() == payloads
    # Jobs that start all the same find what they need.
    environment = Environment(workplace.store, workplace.folder / "raw", "cpu", 1)
    for task in make_tasks(plan, CONFIG, gpus=0):
        workplace.artifacts.reference(task.name).unlink()
        build(workplace.artifacts.reference(task.name), environment)
    assert workplace.store.payload_keys() == payloads
    assert list(workplace.store.root.glob(".partial/*/")) == []
    assert workplace.accept() == ["there is nothing to accept"]


def test_a_stopped_check_accepts_nothing_and_promises_no_checkpoint(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object) -> None:
        raise StoppedError("model/x: stopped by SIGINT with a checkpoint saved; run again, and the training goes on")

    workplace.refactor("engine/batches.py")
    monkeypatch.setattr("robustfeatures.tools.accept.compute", stop)
    with pytest.raises(StoppedError, match=r"^\w+/digits-\S+: stopped, and nothing was accepted; run again$"):
        workplace.accept()
    assert workplace.records() == []


def test_the_record_says_what_was_compared_when_why_and_both_codes(workplace: Workplace) -> None:
    before = {recipe.label: recipe.identity for recipe in workplace.plan().recipes.values()}
    workplace.refactor("engine/batches.py")
    workplace.accept()
    (path,) = workplace.records()
    record = json.loads(path.read_text())
    now = {name: recipe for name, recipe in workplace.plan().recipes.items() if recipe.stage.name != "data"}
    assert (record["reason"], record["study"], record["check"]) == ("a new helper", "tested", 1)
    assert record["when"].startswith("20")
    assert {entry["artifact"] for entry in record["stands"].values()} == set(now)
    for key, entry in record["stands"].items():
        recipe = now[entry["artifact"]]
        assert entry["before"] == {name: before[recipe.label][name] for name in ("code", "libraries")}
        assert entry["now"] == {name: recipe.identity[name] for name in ("code", "libraries")}
        assert entry["before"]["code"] != entry["now"]["code"]
        assert key != entry["kept"]
        assert read_reference(workplace.artifacts.reference(recipe.name))["key"] == entry["kept"]
    for one in record["compared"]:
        reference = read_reference(workplace.artifacts.reference(one["artifact"]))
        stage = reference["stage"]
        files = {"model": {"model.safetensors", "history.csv"}, "derived": {"data.zarr"}, "measurement": {"rows.csv"}}
        assert set(one["contents"]) == files.get(stage, {"rows.csv", "diagnostics.csv", "robust.npy"})
        assert reference["content"] in one["contents"].values()


def attacking_in_l2(plan: Plan) -> list[str]:
    """What a change of the L2 norm makes anew, inputs first."""
    return [
        name
        for name, recipe in plan.recipes.items()
        if "robustfeatures.attacks.l2" in reach.reach(recipe.code_entries).modules
    ]


def test_all_may_be_made_again(workplace: Workplace) -> None:
    workplace.refactor("attacks/l2.py")
    plan = workplace.plan()
    attacking = attacking_in_l2(plan)
    lines = workplace.accept(check=None)
    # Networks trained on what attacked sets hold find that under the key they had.
    assert [line.removeprefix("the same bytes: ") for line in lines[:-1]] == attacking
    assert workplace.lacking(workplace.plan()) == []


def test_another_version_of_a_library_is_accepted_too(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    version = identity.version
    monkeypatch.setattr(identity, "version", lambda name: "99.0" if name == "scikit-learn" else version(name))
    assert {name.partition("/")[0] for name in workplace.lacking(workplace.plan())} > {"data", "model"}
    workplace.accept()
    plan = workplace.plan()
    assert workplace.lacking(plan) == []
    (record,) = workplace.records()
    (data,) = (name for name in plan.recipes if name.startswith("data/"))
    (entry,) = (one for one in json.loads(record.read_text())["stands"].values() if one["artifact"] == data)
    assert entry["before"]["code"] == entry["now"]["code"]
    assert entry["now"]["libraries"]["scikit-learn"] == "99.0"


def test_a_changed_sum_is_refused(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    step = l2.step
    monkeypatch.setattr(l2, "step", lambda images, gradient, size: step(images, gradient, torch.as_tensor(0.9 * size)))
    workplace.refactor("attacks/l2.py")
    plan = workplace.plan()
    lacking, first = workplace.lacking(plan), attacking_in_l2(plan)[0]
    with pytest.raises(UserError, match=rf"^{first}: .* has other content .* nothing was accepted$"):
        workplace.accept(check=None)
    assert workplace.records() == []
    assert workplace.lacking(workplace.plan()) == lacking
    assert list(workplace.store.root.glob(".partial/*/")) == []


def test_other_parameters_are_not_accepted(workplace: Workplace) -> None:
    study = workplace.folder / "studies" / "tested.yaml"
    study.write_text(study.read_text().replace("learning_rate: 0.5", "learning_rate: 0.4"))
    plan = workplace.plan()
    lacking = workplace.lacking(plan)
    assert lacking
    candidates, missing = find_candidates(plan, workplace.store)
    assert candidates == []
    assert missing == lacking
    assert workplace.accept() == [
        f"{len(lacking)} artifacts cannot be accepted: the store has none that differ in code or libraries alone",
        "there is nothing to accept",
    ]


def test_a_chain_of_two_acceptances(workplace: Workplace) -> None:
    payloads = workplace.store.payload_keys()
    for _ in range(2):
        workplace.refactor("engine/batches.py")
        workplace.accept()
        assert workplace.lacking(workplace.plan()) == []
    assert len(workplace.records()) == 2
    assert workplace.store.payload_keys() == payloads
    # The code of the first stands for itself again.
    batches = workplace.code / "engine" / "batches.py"
    batches.write_text((Path(l2.__file__).parents[1] / "engine" / "batches.py").read_text())
    assert workplace.lacking(workplace.plan()) == []


def below(plan: Plan, name: str) -> set[str]:
    """All artifacts that are made of this one."""
    direct = {other for other in plan.recipes if name in plan.inputs(other)}
    return direct.union(*(below(plan, one) for one in direct))


def test_a_payload_that_is_gone_is_made_again(workplace: Workplace) -> None:
    workplace.refactor("engine/batches.py")
    workplace.accept()
    plan = workplace.plan()
    (name,) = (name for name in plan.recipes if name.startswith("model/digits-adversarial"))
    kept = read_reference(workplace.artifacts.reference(name))["key"]
    workplace.store.remove(kept)
    plan = workplace.plan()
    # Nothing is known of what lies below until its input is there again. The store keeps the payloads.
    assert set(workplace.lacking(plan)) == {name, *below(plan, name)}
    assert list(verify(workplace.store)) == []
    build(workplace.artifacts.reference(name), Environment(workplace.store, workplace.folder / "raw", "cpu", threads=1))
    reference = read_reference(workplace.artifacts.reference(name))
    assert reference["key"] != kept
    assert "accepted" not in reference
    # The same content came of it, so nothing else is computed.
    assert workplace.lacking(workplace.plan()) == []


def test_show_and_why_tell_it(workplace: Workplace) -> None:
    (old,) = (recipe for recipe in workplace.plan().recipes.values() if recipe.label == "digits-standard-seed0")
    workplace.refactor("engine/batches.py")
    workplace.accept()
    (now,) = (recipe for recipe in workplace.plan().recipes.values() if recipe.label == "digits-standard-seed0")
    code = f"  code: {old.identity['code']} -> {now.identity['code']}"
    told = list(show(workplace.artifacts.reference(now.name), workplace.store))
    accepted = "made by other code, and accepted for the present code on 20"
    (line,) = (number for number, line in enumerate(told) if line.startswith(accepted))
    assert told[line].endswith(": a new helper")
    assert told[line + 1] == code
    assert told[line + 2].startswith("  made again with the same bytes: ")
    assert "missing" not in told[-1]
    reasons = list(why(workplace.artifacts.reference(now.name)))
    assert [one for one in reasons if one.startswith(accepted)]
    assert reasons[-2:] == [f"differs from {old.artifact}.json in", code]
    # The older one was not accepted, and nothing was before it.
    assert list(why(workplace.artifacts.reference(old.name)))[-1] == "no earlier build of this label"


def test_verify_checks_the_records(workplace: Workplace) -> None:
    workplace.refactor("engine/batches.py")
    workplace.accept()
    assert list(verify(workplace.store)) == []
    (path,) = workplace.records()
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"a new helper", b"a new reason"))
    assert list(verify(workplace.store)) == [f"{path}: damaged"]
    # A damaged one stands for nothing.
    shutil.rmtree(workplace.artifacts.root)
    assert workplace.lacking(workplace.plan())
    found, moved = verify(workplace.store, repair=True)
    assert found == f"{path}: damaged"
    assert moved.startswith(f"moved {path} to {workplace.store.root / '.damaged'}")
    assert list(verify(workplace.store)) == []
    path.write_bytes(whole)
    assert workplace.lacking(workplace.plan()) == []


def test_a_record_of_other_content_stands_for_nothing(workplace: Workplace) -> None:
    workplace.refactor("engine/batches.py")
    workplace.accept()
    (path,) = workplace.records()
    record = json.loads(path.read_text())
    key, entry = next(iter(record["stands"].items()))
    store = workplace.store
    assert store.manifest(key) is not None
    # As if the payload had been lost, and made again with other bytes.
    store.remove(entry["kept"])
    with store.lease(entry["kept"]) as lease:
        lease.fresh.mkdir()
        (lease.fresh / "rows.csv").write_text("other")
        store.publish(lease, {"content": "other"})
    assert store.manifest(key) is None
    (line,) = verify(store)
    assert line == f"{path}: {entry['artifact']} stands for {entry['kept']}, which has other content"


def test_gc_keeps_what_records_point_to(workplace: Workplace) -> None:
    payloads = workplace.store.payload_keys()
    workplace.refactor("engine/batches.py")
    workplace.accept()
    shutil.rmtree(workplace.artifacts.root)
    plan = workplace.plan()
    assert find_unneeded([plan], workplace.artifacts, workplace.store).keys(everyone=True) == []
    assert leftovers(workplace.store, unfinished=True, everyone=True) == []
    # A record goes with the last of its payloads.
    for key in payloads:
        workplace.store.remove(key)
    assert leftovers(workplace.store, unfinished=False) == workplace.records()
    for path in leftovers(workplace.store, unfinished=False):
        discard(path)
    assert workplace.records() == []


# Kills itself when a function is called for the so-and-so-manieth time, before it runs or after.
KILLED = """
import os, signal, sys
from pathlib import Path
from robustfeatures.pipeline.plan import reach
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.store import acceptances
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.config import Config
from robustfeatures.tools.accept import accept

folder, code, point = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
reach.ROOT = code

def killed(function, wanted, after=False):
    calls = 0
    def called(*given, **named):
        nonlocal calls
        calls += wanted(*given)
        if calls == 2 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        found = function(*given, **named)
        if calls == 2 and after:
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    return called

if point == "making again":
    Store.publish = killed(Store.publish, lambda *_: 1)
else:
    # The rename that makes the record visible.
    named = lambda fresh, place: 2 * (acceptances.FOLDER in Path(place).parts)
    Path.replace = killed(Path.replace, named, after=point == "after the rename")
plan = unfold(Config(study="tested", device="cpu"), folder / "studies")
for line in accept(plan, "tested", Store(folder / "results/store"), folder / "raw", check=1, reason="killed"):
    pass
"""


@pytest.mark.parametrize("point", ["making again", "before the rename", "after the rename"])
def test_killed_in_the_middle_it_has_happened_or_not(workplace: Workplace, point: str) -> None:
    workplace.refactor("engine/batches.py")
    lacking = workplace.lacking(workplace.plan())
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(workplace.folder), str(workplace.code), point],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    happened = point == "after the rename"
    assert workplace.lacking(workplace.plan()) == ([] if happened else lacking)
    assert list(verify(workplace.store)) == []
    # Whatever was left, another one goes on.
    assert workplace.accept()[-1].startswith("there is nothing" if happened else "accepted ")
    assert workplace.lacking(workplace.plan()) == []
