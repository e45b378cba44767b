"""A study built in this process, one job after another: starting Python for each would take longer than small jobs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from robustfeatures.pipeline.plan.plan import Plan, unfold
from robustfeatures.pipeline.plan.prepare import prepare
from robustfeatures.pipeline.plan.tasks import tasks_of
from robustfeatures.pipeline.report.building import build_view
from robustfeatures.pipeline.run.job import Surroundings, build
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.config import Config


def built_study(folder: Path, study: Mapping[str, Any]) -> tuple[Plan, Path]:
    """The plan of a study, and the folder of its tables, figures and claims, all of which are there."""
    (folder / "studies").mkdir()
    (folder / "studies" / "tested.yaml").write_text(yaml.safe_dump(study))
    config = Config(study="tested", device="cpu")
    plan = unfold(config, folder / "studies")
    tasks = tasks_of(plan, config, gpus=0)
    artifacts, store = Artifacts(folder / "results" / "artifacts"), Store(folder / "results" / "store")
    prepare(plan, tasks, artifacts, store)
    surroundings = Surroundings(store=store, raw=folder / "raw", device="cpu", threads=1)
    for task in tasks:
        build(artifacts.reference(task.name), surroundings)
    for view in plan.views:
        build_view(artifacts.reference(view.artifact), store=store)
    return plan, folder / "results" / "tested"
