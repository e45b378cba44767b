"""Every experiment from raw images to its table, figure and claims: the full digits study, cut down to seconds.

The jobs run in this process, one after another, since starting Python for each would take longer than they do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from robustfeatures.jobs import Surroundings, build
from robustfeatures.recipes.config import Config
from robustfeatures.recipes.plan import Plan, unfold
from robustfeatures.recipes.prepare import prepare
from robustfeatures.recipes.tasks import tasks_of
from robustfeatures.recipes.yaml import read_yaml
from robustfeatures.store.references import Artifacts
from robustfeatures.store.store import Store
from robustfeatures.views import build_view
from tests.conftest import REPOSITORY

SEEDS = 2
# Of the fields that cost time, the largest value that is left.
MOST = {"epochs": 4, "steps": 2, "restarts": 2}


def shrunk(value: Any, name: str = "") -> Any:
    """The same study with few epochs and steps; what an experiment sets by other names it must keep small itself."""
    if isinstance(value, dict):
        return {key: shrunk(item, key) for key, item in value.items()}
    if name == "seeds":
        return value[:SEEDS]
    if name == "milestones":
        return [1]
    if isinstance(value, list):
        return [shrunk(item) for item in value]
    return min(value, MOST[name]) if name in MOST else value


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Path]:
    """The plan, and the results folder in which all of it is built."""
    folder = tmp_path_factory.mktemp("full")
    (folder / "studies").mkdir()
    study = shrunk(read_yaml(REPOSITORY / "workflow" / "studies" / "digits-full.yaml"))
    (folder / "studies" / "full.yaml").write_text(yaml.safe_dump(study))
    config = Config(study="full", device="cpu")
    plan = unfold(config, folder / "studies")
    tasks = tasks_of(plan, config, gpus=0)
    artifacts, store = Artifacts(folder / "results" / "artifacts"), Store(folder / "results" / "store")
    prepare(plan, tasks, artifacts, store)
    surroundings = Surroundings(store=store, raw=folder / "raw", device="cpu", threads=1)
    for task in tasks:
        build(artifacts.reference(task.name), surroundings)
    for view in plan.views:
        build_view(artifacts.reference(view.artifact), store=store)
    return plan, folder / "results" / "full"


def test_every_view_is_written(built: tuple[Plan, Path]) -> None:
    plan, results = built
    outputs = [results.parent / name for view in plan.views for name in view.outputs]
    assert outputs
    assert [path.name for path in outputs if not path.stat().st_size] == []


def test_every_claim_is_judged(built: tuple[Plan, Path]) -> None:
    plan, results = built
    claims = pd.read_csv(results / "claims.csv")
    (view,) = (view for view in plan.views if view.kind == "claims")
    assert set(claims["experiment"]) == {part.experiment.id for part in view.parts}
    assert set(claims["verdict"]) <= {"held", "not held"}
    assert claims["value"].notna().all()


def test_every_table_has_a_row_for_what_was_measured(built: tuple[Plan, Path]) -> None:
    plan, results = built
    for view in plan.views:
        if view.kind == "table":
            table = pd.read_csv(results / "tables" / f"{view.parts[0].experiment.id}.csv")
            assert len(table), view.label
