"""The workflow through Snakemake's Slurm plugin on a real Slurm: complete, exact, and nothing computed twice."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.verify import verify
from tests.conftest import Workspace, workspace_in
from tests.slurm.cluster import GPUS, Cluster, until

pytestmark = pytest.mark.slow

# Without an accounting database, jobs are asked for with squeue. Each look that finds nothing ended delays the next one
# by ten seconds, so the first comes when most of these short jobs are over.
COMMAND = [
    *(sys.executable, "-m", "snakemake", "--profile", "profiles/slurm", "--config", "study=smoke"),
    *("--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "8", "--latency-wait", "30"),
]
LIMIT_SECONDS = 600
SETTINGS = "profiles/slurm/settings.yaml"


def on_slurm(folder: Path) -> Workspace:
    """A fresh copy of the workflow, its cluster profile filled in as a user would."""
    workspace = workspace_in(folder)
    workspace.edit("config.yaml", "study: digits", "study: smoke")
    profile = "profiles/slurm/config.yaml"
    workspace.edit(profile, "  slurm_account: your-account\n", "")
    workspace.edit(profile, "your-gpu-partition", "gpu")
    # This machine's GPUs are only counted; there are none to compute on.
    workspace.edit(SETTINGS, "device: cuda", "device: cpu\ngpus_per_job: 1")
    return workspace


def start(workspace: Workspace, cluster: Cluster, *targets: str) -> subprocess.Popen[bytes]:
    """Snakemake's main process; what it prints goes to `snakemake.log` in the workspace."""
    with (workspace.folder / "snakemake.log").open("ab") as log:
        return subprocess.Popen(
            [*COMMAND, *targets],
            cwd=workspace.folder,
            env={**cluster.environment, "ROBUSTFEATURES_CHECKPOINT_SECONDS": "0"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def finish(process: subprocess.Popen[bytes], workspace: Workspace) -> None:
    code = process.wait(LIMIT_SECONDS)
    assert code == 0, (workspace.folder / "snakemake.log").read_text()[-6000:]


def computed(*workspaces: Workspace) -> Counter[str]:
    """How often the computation of each payload began, by key, according to the jobs' logs."""
    lines = "".join(
        path.read_text() for workspace in workspaces for path in (workspace.folder / "results/logs").rglob("*.log")
    )
    return Counter(re.findall(r": computing (\w+)$", lines, flags=re.MULTILINE))


def tables(workspace: Workspace) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (workspace.folder / "results/smoke/tables").glob("*")}


def test_the_smoke_study_with_its_main_process_killed(cluster: Cluster, smoke: Workspace, tmp_path: Path) -> None:
    workspace = on_slurm(tmp_path / "work")
    with cluster.watch() as watch:
        first = start(workspace, cluster)
        # Some jobs are finished and others are running when the main process dies.
        assert until(lambda: len(workspace.payloads()) >= 3, 240), (workspace.folder / "snakemake.log").read_text()
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        assert any(job.state == "RUNNING" for job in cluster.squeue())
        before = workspace.payloads()
        workspace.snakemake("--unlock")
        finish(start(workspace, cluster), workspace)
    after = workspace.payloads()
    assert {key: after[key] for key in before} == before
    assert watch.most_gpus == GPUS
    found = computed(workspace)
    assert set(found.values()) == {1}, found
    assert set(found) == set(after)
    assert tables(workspace) == tables(smoke)
    assert list(verify(Store(workspace.store))) == []
    print(f"{len(found)} payloads in {len(watch.states)} Slurm jobs, never more than {watch.most_gpus} GPUs in use")


def test_two_workflows_share_a_store(cluster: Cluster, smoke: Workspace, tmp_path: Path) -> None:
    (built,) = (smoke.folder / "results/artifacts/derived").glob("digits-D_rand-seed0-*.json")
    target = f"results/artifacts/derived/{built.name}"
    workspaces = [on_slurm(tmp_path / name) for name in ("one", "other")]
    for workspace in workspaces:
        workspace.edit("config.yaml", "store: results/store", f"store: {tmp_path}/store")
        workspace.edit(SETTINGS, "seeds_per_job: 1", "seeds_per_job: 1\nderived_parts: 2")
    processes = [start(workspace, cluster, target) for workspace in workspaces]
    for process, workspace in zip(processes, workspaces, strict=True):
        finish(process, workspace)
    found = computed(*workspaces)
    store = Store(tmp_path / "store")
    assert set(found) == set(store.payload_keys())
    assert set(found.values()) == {1}, found
    assert list(verify(store)) == []
    for workspace in workspaces:
        assert (
            json.loads((workspace.folder / target).read_text())["content"] == json.loads(built.read_text())["content"]
        )


def in_training(cluster: Cluster, workspace: Workspace, after: set[int]) -> tuple[int, psutil.Process]:
    """The Slurm job that trains now, none of `after`, and its computing process, once it has saved a checkpoint."""
    found: list[tuple[int, psutil.Process]] = []

    def saved() -> bool:
        for job in cluster.squeue():
            if job.state != "RUNNING" or job.number in after or not job.comment.startswith("rule_model"):
                continue
            for number in filter(lambda number: number > 0, cluster.processes(job.number)):
                # Processes come and go while they are looked at.
                with contextlib.suppress(psutil.NoSuchProcess):
                    process = psutil.Process(number)
                    saves = [path.stat().st_mtime for path in workspace.store.glob(".partial/*/checkpoint.pt")]
                    if "build" in process.cmdline() and saves and max(saves) > process.create_time() + 1:
                        found.append((job.number, process))
        return bool(found)

    assert until(saved, 180), (workspace.folder / "snakemake.log").read_text()[-4000:]
    return found[-1]


def training_log(workspace: Workspace) -> str:
    """The log of the last try."""
    return "".join(path.read_text() for path in (workspace.folder / "results/logs/model").glob("*.log"))


def job_log(workspace: Workspace, job: int) -> str:
    """The output of a Slurm job, which later tries do not overwrite."""
    logs = (workspace.folder / ".snakemake/slurm_logs").rglob(f"{job}.log")
    return "".join(path.read_text() for path in logs)


SAVED = "stopped by SIGTERM with a checkpoint saved"
# The controller looks at time limits every 30 s only, so that end comes first, while most of the training is left.
ENDS = {"TIMEOUT": "its time limit", "CANCELLED": "scancel", "FAILED": "SIGKILL"}


def _end_in_every_way(cluster: Cluster, workspace: Workspace) -> None:
    """End one try after the other, each differently, once it has saved a checkpoint."""
    jobs: set[int] = set()
    for state in ENDS:
        job, trainer = in_training(cluster, workspace, jobs)
        # Snakemake begins a new log with each try.
        assert ("resumes from its checkpoint" in training_log(workspace)) == bool(jobs)
        jobs.add(job)
        if state == "CANCELLED":
            cluster.cancel(job)
        elif state == "FAILED":
            trainer.send_signal(signal.SIGKILL)
        else:
            cluster.end_in(job, 1)
        assert state == "FAILED" or until(lambda job=job: SAVED in job_log(workspace, job), 60)
        assert cluster.wait(job, *ENDS, "COMPLETED", seconds=120) == state


def test_a_training_goes_on_after_every_kind_of_end(cluster: Cluster, tmp_path: Path) -> None:
    """Out of time, cancelled, killed: the fourth try ends with the weights of an undisturbed run, bit for bit."""
    workspace = on_slurm(tmp_path / "work")
    workspace.edit("workflow/studies/smoke.yaml", "    epochs: 2\n", "    epochs: 800\n")
    undisturbed = Workspace(Path(shutil.copytree(workspace.folder, tmp_path / "undisturbed")))
    undisturbed.snakemake("-n")
    (plan,) = (undisturbed.folder / "results/artifacts/.plan/model").glob("digits-adversarial-seed0-*.json")
    target = f"results/artifacts/model/{plan.name}"
    process = start(workspace, cluster, target)
    with ThreadPoolExecutor() as pool:
        beside = pool.submit(undisturbed.snakemake, target)
        _end_in_every_way(cluster, workspace)
        finish(process, workspace)
        beside.result()
    assert "resumes from its checkpoint" in training_log(workspace)
    disturbed, whole = (json.loads((each.folder / target).read_text()) for each in (workspace, undisturbed))
    assert (disturbed["key"], disturbed["content"]) == (whole["key"], whole["content"])
    print(f"a training ended by {', '.join(ENDS.values())} went on each time and is the same to the bit")
