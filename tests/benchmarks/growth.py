"""The cost of planning as studies grow: unfolding, a dry run, one job's own start, and `verify` and `gc` of a store."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.plan.prepare import prepare
from robustfeatures.pipeline.plan.tasks import make_tasks
from robustfeatures.pipeline.store.references import Artifacts, write_reference
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.config import Config
from robustfeatures.tools.gc import find_unneeded
from robustfeatures.tools.verify import verify
from tests.conftest import REPOSITORY, Workspace, workspace_in

# The smoke study has one data set, and thirty more recipes for each seed.
RECIPES_PER_SEED = 30


def grow_study(folder: Path, recipes: int) -> Workspace:
    """The smoke study with so many seeds that it has about `recipes` recipes, each seed a job of its own."""
    workspace = workspace_in(folder)
    seeds = ", ".join(map(str, range(round(recipes / RECIPES_PER_SEED))))
    workspace.edit("config.yaml", "study: digits", "study: smoke")
    workspace.edit("config.yaml", "seeds_per_job: 8", "seeds_per_job: 1")
    workspace.edit("workflow/studies/smoke.yaml", "seeds: [0]", f"seeds: [{seeds}]")
    return workspace


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that the work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def start_job(workspace: Workspace, name: str) -> None:
    """Run Snakemake on one job, as a scheduler does; its payload is already in the store."""
    command = [
        *(sys.executable, "-m", "snakemake", "--cores", "1", "--mode", "remote", "--nolock", "--force"),
        *("--target-jobs", f"data:name={name}", "--allowed-rules", "data"),
    ]
    subprocess.run(command, cwd=workspace.folder, capture_output=True, check=True)


def fill(store: Store, artifacts: Artifacts, names: list[str], workspace: Workspace) -> None:
    """A small payload for each recipe, as a job would publish it."""
    for number, name in enumerate(names):
        record = json.loads((workspace.folder / artifacts.plan(name)).read_text())
        key = f"{number:016x}"
        with store.lease(key) as lease:
            lease.fresh.mkdir()
            (lease.fresh / "rows.csv").write_text(name)
            built = {"started": "2000-01-01T00:00:00+00:00"}
            manifest = store.publish(lease, {"content": key, "built": built})
        write_reference(artifacts.reference(name), record, manifest)


def measure(folder: Path, recipes: int) -> dict[str, float]:
    """Seconds of each step for a study of about `recipes` recipes; the store holds a payload for each."""
    workspace = grow_study(folder / str(recipes), recipes)
    studies = workspace.folder / "workflow" / "studies"
    config = Config(study="smoke")
    artifacts = Artifacts(workspace.folder / "results" / "artifacts")
    store = Store(workspace.store)
    plan = unfold(config, studies)
    tasks = make_tasks(plan, config, 0)
    found = {"recipes": float(len(plan.recipes))}
    found["unfold"] = min(seconds(lambda: unfold(config, studies)) for _ in range(3))
    found["first preparation"] = seconds(lambda: prepare(plan, tasks, artifacts, store))
    found["preparation"] = seconds(lambda: prepare(plan, tasks, artifacts, store))
    found["snakemake -n"] = seconds(lambda: workspace.snakemake("-n", "--quiet", "all"))
    (data,) = (name for name in plan.recipes if name.startswith("data/"))
    subprocess.run(
        [sys.executable, "-m", "robustfeatures", "build", str(artifacts.reference(data)), "--store", str(store.root)],
        cwd=REPOSITORY,
        check=True,
    )
    artifacts.reference(data).unlink()
    found["start of a job"] = seconds(lambda: start_job(workspace, Path(data).name))
    fill(store, artifacts, list(plan.recipes), workspace)
    found["verify"] = seconds(lambda: list(verify(store)))
    found["gc"] = seconds(lambda: find_unneeded([plan], artifacts, store))
    for path in store.root.iterdir():
        path.chmod(0o755)
    shutil.rmtree(workspace.folder)
    return found
