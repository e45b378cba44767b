"""The division of a plan into jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from robustfeatures.errors import UserError
from robustfeatures.files import write_json
from robustfeatures.pipeline.plan.plan import Plan, unfold
from robustfeatures.pipeline.plan.tasks import (
    KnownRemote,
    Task,
    announce_tasks,
    make_tasks,
    plan_copies,
    read_remote,
    read_task,
    write_tasks,
)
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.study.config import Config
from robustfeatures.training.settings import Model
from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def plan() -> Plan:
    return unfold(Config(study="digits-full"), REPOSITORY / "workflow" / "studies")


def behind(plan: Plan, artifacts: tuple[str, ...]) -> set[str]:
    """The recipes of these artifacts and all recipes that they build on."""
    found: set[str] = set()
    waiting = [name for name in artifacts if name in plan.recipes]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += plan.inputs(name)
    return found


@pytest.mark.parametrize(("seeds", "rows"), [(1, 1), (8, 1), (1, 4), (8, 4), (3, 100)])
def test_every_artifact_is_made_once_after_what_it_builds_on(plan: Plan, seeds: int, rows: int) -> None:
    tasks = make_tasks(plan, Config(study="digits-full", seeds_per_job=seeds, rows_per_job=rows), gpus=0)
    done: set[str] = set()
    for task in tasks:
        assert len(task.artifacts) <= seeds * rows
        assert len({plan.recipes[name].stage for name in task.artifacts}) == 1
        for name in task.artifacts:
            assert set(plan.inputs(name)) <= done
        assert not done & set(task.artifacts)
        done |= set(task.artifacts)
    assert done == set(plan.recipes)
    assert len({task.name for task in tasks}) == len(tasks)


def test_a_view_alone_needs_no_row_of_another(plan: Plan) -> None:
    seeds = make_tasks(plan, Config(study="digits-full", seeds_per_job=8), gpus=0)
    rows = make_tasks(plan, Config(study="digits-full", seeds_per_job=8, rows_per_job=4), gpus=0)
    assert len(rows) < 0.6 * len(seeds)
    shared = {members for task in seeds if len(members := frozenset(task.artifacts)) > 1}
    for view in plan.views:
        needed = behind(plan, view.inputs)
        for task in rows:
            members = frozenset(task.artifacts)
            # Runs that differ only in the seed share a job, whichever views need them.
            assert members <= needed or not members & needed or members in shared


@pytest.mark.parametrize("rows", [1, 4, 100])
def test_a_network_that_another_job_probes_is_copied_from_there(plan: Plan, tmp_path: Path, rows: int) -> None:
    """A6 records the four trainings whose networks A2 and A7 test, with all seeds."""
    artifacts = Artifacts(tmp_path / "artifacts")
    made = make_tasks(plan, Config(study="digits-full", seeds_per_job=8, rows_per_job=rows), gpus=0)
    tasks = {task.name: task for task in plan_copies(plan, made, artifacts, ())}
    copied = {name: source for task in tasks.values() for name, source in task.copied_from.items()}
    assert {plan.recipes[name].family for name in copied} >= {
        "digits-on-D_rand-downstream",
        "digits-on-D_det-pathway-1",
        "digits-on-D_rand-robust-downstream",
        "digits-on-D_det-robust-pathway-1",
    }
    for name, source in copied.items():
        network, probed = plan.recipes[name].parameters, plan.recipes[source].parameters
        assert isinstance(network, Model)
        assert isinstance(probed, Model)
        assert probed.probes
        assert network == replace(probed, probes=())
        assert plan.recipes[name].inputs["data"] is plan.recipes[source].inputs["data"]
    # One that copies comes after the job that trains, and Snakemake knows that it waits for it.
    done: set[str] = set()
    for task in tasks.values():
        for artifact in (
            *task.copied_from.values(),
            *(below for name in task.inputs for below in tasks[name].artifacts),
        ):
            assert artifact in done
        for source in task.copied_from.values():
            assert source in {artifact for name in task.inputs for artifact in tasks[name].artifacts}
        done |= set(task.artifacts)


@pytest.mark.parametrize("seeds", [1, 8])
def test_a_network_that_is_there_waits_for_no_other(plan: Plan, tmp_path: Path, seeds: int) -> None:
    artifacts = Artifacts(tmp_path / "artifacts")
    made = {task.name: task for task in make_tasks(plan, Config(study="digits-full", seeds_per_job=seeds), gpus=0)}

    def plan_again(kept: Sequence[str] = ()) -> dict[str, Task]:
        return {task.name: task for task in plan_copies(plan, list(made.values()), artifacts, kept)}

    first = next(task for task in plan_again().values() if task.copied_from)
    # In the store, though its reference is gone.
    assert plan_again(list(first.artifacts))[first.name] == made[first.name]
    # What it would copy is there: it does, and Snakemake need not look whether the rest of the other job is there.
    for source in first.copied_from.values():
        write_json(artifacts.reference(source), {})
    again = plan_again()[first.name]
    assert again.copied_from == first.copied_from
    assert again.inputs == made[first.name].inputs
    # With one seed of a batch there, only the others are copied.
    write_json(artifacts.reference(first.artifacts[0]), {})
    assert plan_again()[first.name].copied_from.keys() == set(first.artifacts[1:])


# What a job does first, in a process of its own.
READ = "import sys; from pathlib import Path; from robustfeatures.pipeline.plan.tasks import read_task; " + (
    "from robustfeatures.pipeline.store.references import Artifacts; "
    "print(read_task(Artifacts(Path(sys.argv[1])), sys.argv[2]))"
)


def test_another_plan_beside_a_run_does_not_change_its_jobs(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = Artifacts(tmp_path / "artifacts")
    # So that the variable is gone after the test.
    monkeypatch.setenv(artifacts.tasks_variable, "")
    config = Config(study="digits-full", gpus_per_job=1)
    cuda = make_tasks(plan, config, gpus=1)
    cpu = make_tasks(plan, replace(config, evaluation_parts=4), gpus=0)
    task = next(task for task in cuda if task.name.startswith("evaluation/"))
    (other,) = (one for one in cpu if one.name == task.name)
    assert (task.gpu, task.parts, other.gpu, other.parts) == (1, 1, 0, 4)
    known = KnownRemote("file:///remote", ("a", "b"))
    announce_tasks(artifacts, write_tasks(artifacts, cuda, known))
    environment = dict(os.environ)
    # A dry run in another process, such as `snakemake -n --config device=cpu`.
    write_tasks(artifacts, cpu)
    assert read_remote(artifacts) == known
    read = [sys.executable, "-c", READ, str(artifacts.root), task.name]
    assert subprocess.check_output(read, env=environment, text=True).strip() == str(task)
    # By hand, the newest plan counts.
    monkeypatch.delenv(artifacts.tasks_variable)
    assert read_task(artifacts, task.name) == other
    assert read_remote(artifacts) is None
    write_tasks(artifacts, cuda, known)
    assert read_task(artifacts, task.name) == task
    assert read_remote(artifacts) == known


def test_a_run_of_another_study_says_which_study_plans_an_artifact(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = Artifacts(tmp_path / "artifacts")
    monkeypatch.setenv(artifacts.tasks_variable, "")
    first, *others = make_tasks(plan, Config(study="digits-full"), gpus=0)
    write_tasks(artifacts, [first])
    announce_tasks(artifacts, write_tasks(artifacts, others))
    for name in (first.name, *first.artifacts):
        with pytest.raises(UserError, match=r"\.json: the study digits-full plans it; add `--config study=\S+`$"):
            read_task(artifacts, name)


def test_by_hand_a_task_of_an_earlier_plan_is_found(plan: Plan, tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path / "artifacts")
    first, *others = make_tasks(plan, Config(study="digits-full"), gpus=0)
    write_tasks(artifacts, [first])
    write_tasks(artifacts, others)
    assert read_task(artifacts, first.name) == first
    with pytest.raises(UserError, match=r"model/none-1\.json: no study that was unfolded here plans this artifact$"):
        read_task(artifacts, "model/none-1")
    write_json(artifacts.plan("table/none-1"), {})
    with pytest.raises(UserError, match=r"table/none-1\.json: a table, .*; `robustfeatures view` makes it$"):
        read_task(artifacts, "table/none-1")


def test_a_damaged_file_of_tasks_is_written_again(plan: Plan, tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path / "artifacts")
    tasks = make_tasks(plan, Config(study="digits-full"), gpus=0)
    write_tasks(artifacts, tasks)
    (path,) = artifacts.newest_tasks()
    path.write_text("")
    with pytest.raises(UserError, match="no study that was unfolded here"):
        read_task(artifacts, tasks[0].name)
    write_tasks(artifacts, tasks)
    assert read_task(artifacts, tasks[0].name) == tasks[0]


def test_a_job_finds_the_tasks_of_its_run_however_the_folder_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    spellings = (Path("results/artifacts"), tmp_path / "results/artifacts", Path("below/../results/artifacts"))
    assert len({Artifacts(path).tasks_variable for path in spellings}) == 1
    assert Artifacts(tmp_path / "other").tasks_variable != Artifacts(spellings[0]).tasks_variable
