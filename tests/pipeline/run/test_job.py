"""What a job is told, and what it finds: its inputs, whatever another plan has called them meanwhile."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

from robustfeatures.cli import app
from robustfeatures.pipeline.plan.plan import Plan, unfold
from robustfeatures.pipeline.plan.prepare import prepare
from robustfeatures.pipeline.plan.tasks import make_tasks
from robustfeatures.pipeline.run.job import Environment, _find_inputs, build, read_plan
from robustfeatures.pipeline.store import lease as leases
from robustfeatures.pipeline.store.checkouts import list_checkouts
from robustfeatures.pipeline.store.lease import HeldError
from robustfeatures.pipeline.store.references import Artifacts, read_reference
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.conftest import REPOSITORY


def study_from(source: str) -> dict[str, Any]:
    """Sets derived with a network that the study calls `source`; `standard` and `plain` are the same training."""
    study: dict[str, Any] = read_yaml(REPOSITORY / "workflow" / "studies" / "smoke.yaml")
    quick = study["training"]["standard"] | {"epochs": 1, "schedule": "constant"}
    study["training"] |= {"standard": quick, "plain": quick}
    study["derived"]["D_rand"]["source"] = source
    study["experiments"] = {"A2": {}}
    return study


def test_an_input_is_found_under_the_label_that_another_plan_gave_it(tmp_path: Path) -> None:
    artifacts, store = Artifacts(tmp_path / "results" / "artifacts"), Store(tmp_path / "store")
    environment = Environment(store=store, raw=tmp_path / "raw", device="cpu", threads=1)

    def make_plan(source: str) -> Plan:
        (tmp_path / f"{source}.yaml").write_text(yaml.safe_dump(study_from(source)))
        config = Config(study=source, device="cpu")
        plan = unfold(config, tmp_path)
        prepare(plan, make_tasks(plan, config, gpus=0), artifacts, store)
        return plan

    plan = make_plan("standard")
    (derived,) = (recipe for recipe in plan.recipes.values() if recipe.label == "digits-D_rand-seed0")
    network = derived.inputs["source"]
    # A dry run of the other study, before any job has begun.
    called = make_plan("plain").recipes[derived.name].inputs["source"]
    assert called.name != network.name
    assert called.digest == network.digest
    for recipe in (network.inputs["data"], network, derived):
        build(artifacts.reference(recipe.name), environment)
        # What a job has made is needed from then on, however the run ends.
        made = read_reference(artifacts.reference(recipe.name))["key"]
        assert {one.study for one in list_checkouts(store.root) if made in one.keys} == {"plain"}
    assert not artifacts.reference(called.name).exists()
    assert read_reference(artifacts.reference(derived.name))["digest"] == derived.digest


def test_what_waits_for_a_block_of_another_job_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job derives the sets of two seeds. Another job makes a block of the first one."""
    artifacts, store = Artifacts(tmp_path / "results" / "artifacts"), Store(tmp_path / "store")
    environment = Environment(store=store, raw=tmp_path / "raw", device="cpu", threads=1)
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(study_from("standard") | {"seeds": [0, 1]}))
    config = Config(study="two", device="cpu", seeds_per_job=2)
    plan = unfold(config, tmp_path)
    tasks = make_tasks(plan, config, gpus=0)
    prepare(plan, tasks, artifacts, store)
    (task,) = (
        task for task in tasks if "D_rand-seed0" in task.artifacts[0] and task.artifacts[0].startswith("derived")
    )
    for below in task.inputs:
        for needed in next(each for each in tasks if each.name == below).inputs:
            build(artifacts.reference(needed), environment)
        build(artifacts.reference(below), environment)
    first, second = task.artifacts
    _, key = _find_inputs(artifacts, read_plan(artifacts, first))
    patience: list[float] = []
    lease = Store.lease

    def noting(self: Store, key: str, *names: str, **how: float) -> AbstractContextManager[leases.Lease]:
        patience.extend(how.values() if names else [])
        return lease(self, key, *names, **how)

    monkeypatch.setattr(leases, "WAIT_SECONDS", 2.0)
    with store.lease(key, "cpu-train-0"):
        monkeypatch.setattr(Store, "lease", noting)
        with pytest.raises(HeldError, match=rf"^{first}: .*cpu-train-0\.lock: held by process "):
            build(artifacts.reference(task.name), environment)
        # It waits once, after its other work.
        assert patience[0] == 0.0
        assert (sum(patience), patience[-1]) == (2.0, 2.0)
        assert artifacts.reference(second).exists()
        assert not artifacts.reference(first).exists()
    build(artifacts.reference(task.name), environment)
    assert artifacts.reference(first).exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--part 3 --parts 2", "^--part: 3 of --parts 2; give at least 2 parts, and one of them"),
        ("--part 1", "^--part: 1 of --parts 1; give at least 2 parts, and one of them"),
        ("--part 0 --parts 2", r"'--part'.*: .*greater than or equal to 1$"),
        ("--part 1 --parts 0", r"'--parts'.*: .*greater than or equal to 1$"),
        ("--threads 0", r"'--threads'.*: .*greater than or equal to 1$"),
        ("--jobs-per-gpu 0", r"'--jobs-per-gpu'.*: .*greater than or equal to 1$"),
        ("--device tpu", r"'--device'.*: .*'tpu' is not one of 'auto', 'cpu', 'cuda'\.$"),
    ],
)
def test_what_no_job_can_be_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match=r"\w") as refused:
        app(
            ["build", "results/artifacts/model/a-1.json", "--store", "store", *arguments.split()], standalone_mode=False
        )
    message = getattr(refused.value, "format_message", lambda: str(refused.value))()
    assert re.search(said, message), message
    assert list(tmp_path.iterdir()) == []
