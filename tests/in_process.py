"""A study built in one process, job after job: starting Python and torch for each takes longer than small jobs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.plan.prepare import plan_run
from robustfeatures.pipeline.report.building import build_view
from robustfeatures.pipeline.run.job import Environment, build
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.config import Config, read_config
from robustfeatures.pipeline.study.yaml import read_yaml


def build_payloads(folder: Path, config: Config, studies: Path) -> Plan:
    """Do the jobs of a study on the processor, except those of tables, figures, claims and page.

    Paths begin at `folder`.
    """
    artifacts, store = Artifacts(folder / "results" / "artifacts"), Store(folder / config.store)
    config = replace(config, gpus_per_job=0)
    planned = plan_run(config, studies, artifacts, store, is_local=True, uses_conda=False)
    environment = Environment(store=store, raw=folder / config.raw, device=config.device, threads=1)
    for task in planned.tasks:
        build(artifacts.reference(task.name), environment)
    return planned.plan


def built_study(
    folder: Path, study: Mapping[str, Any], *, beside: Mapping[str, str] | None = None
) -> tuple[Plan, Path]:
    """The plan of a study, and the folder of its tables, figures and claims, all of which are there.

    `beside` are further files in the study's folder, by name.
    """
    (folder / "studies").mkdir(parents=True)
    for name, text in (beside or {}).items():
        (folder / "studies" / name).write_text(text)
    (folder / "studies" / "tested.yaml").write_text(yaml.safe_dump(study))
    config = Config(study="tested", device="cpu")
    plan = build_payloads(folder, config, folder / "studies")
    artifacts, store = Artifacts(folder / "results" / "artifacts"), Store(folder / config.store)
    for view in plan.views:
        build_view(artifacts.reference(view.artifact), store=store)
    return plan, folder / "results" / "tested"


if __name__ == "__main__":
    # In the folder of a workflow, with the package that lies there: see `Workspace.build`. A study may be named.
    configured = read_config(read_yaml(Path("config.yaml")))
    build_payloads(Path(), replace(configured, study=(sys.argv[1:] or [configured.study])[0]), Path("workflow/studies"))
