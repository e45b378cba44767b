"""The division of a plan into jobs."""

from __future__ import annotations

import pytest

from robustfeatures.pipeline.plan.plan import Plan, unfold
from robustfeatures.pipeline.plan.tasks import make_tasks
from robustfeatures.pipeline.study.config import Config
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
