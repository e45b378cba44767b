"""The workflow through Snakemake's Slurm plugin on a real Slurm: complete, exact, and nothing computed twice."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.verify import verify
from tests.conftest import Workspace
from tests.slurm.cluster import GPUS, Cluster, until
from tests.slurm.on_slurm import SETTINGS, count_computations, finish, on_slurm, start

pytestmark = pytest.mark.slow

A7 = "results/smoke/tables/A7.csv"


def test_a_table_whose_main_process_was_killed(cluster: Cluster, smoke: Workspace, tmp_path: Path) -> None:
    workspace = on_slurm(tmp_path / "work")
    # Each job starts Snakemake twice, which takes long. So a job takes two rows.
    workspace.edit(SETTINGS, "seeds_per_job: 1", "seeds_per_job: 1\nrows_per_job: 2")
    with cluster.watch() as watch, count_computations(workspace) as found:
        first = start(workspace, cluster, A7)
        # Some jobs are finished and others are running when the main process dies.
        assert until(lambda: len(workspace.payloads()) >= 3, 240), (workspace.folder / "snakemake.log").read_text()
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        assert any(job.state == "RUNNING" for job in cluster.squeue())
        before = workspace.payloads()
        workspace.snakemake("--unlock")
        finish(start(workspace, cluster, A7), workspace)
    after = workspace.payloads()
    assert {key: after[key] for key in before} == before
    assert watch.most_gpus == GPUS
    assert set(found.values()) == {1}, found
    assert set(found) == set(after)
    assert (workspace.folder / A7).read_bytes() == (smoke.folder / A7).read_bytes()
    assert list(verify(Store(workspace.store))) == []
    print(f"{len(found)} payloads in {len(watch.states)} Slurm jobs, never more than {watch.most_gpus} GPUs in use")


def test_two_workflows_share_a_store(cluster: Cluster, smoke: Workspace, tmp_path: Path) -> None:
    (built,) = (smoke.folder / "results/artifacts/derived").glob("digits-D_rand-seed0-*.json")
    target = f"results/artifacts/derived/{built.name}"
    workspaces = [on_slurm(tmp_path / name) for name in ("one", "other")]
    for workspace in workspaces:
        workspace.edit("config.yaml", "store: results/store", f"store: {tmp_path}/store")
        workspace.edit(SETTINGS, "seeds_per_job: 1", "seeds_per_job: 1\nderived_parts: 2")
    with count_computations(*workspaces) as found:
        processes = [start(workspace, cluster, target) for workspace in workspaces]
        for process, workspace in zip(processes, workspaces, strict=True):
            finish(process, workspace)
    store = Store(tmp_path / "store")
    assert set(found) == set(store.payload_keys())
    assert set(found.values()) == {1}, found
    assert list(verify(store)) == []
    for workspace in workspaces:
        assert (
            json.loads((workspace.folder / target).read_text())["content"] == json.loads(built.read_text())["content"]
        )
