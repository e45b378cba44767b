"""A training on a real Slurm that runs out of time, is cancelled and is killed."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.conftest import Workspace
from tests.slurm.cluster import Cluster, until
from tests.slurm.on_slurm import finish, on_slurm, start

pytestmark = pytest.mark.slow


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
                    saved_after = process.create_time() + 1
                    if "build" in process.cmdline() and workspace.last_checkpoint() > saved_after:
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


# A slow disk. Most of the time goes into saving, so a training of few epochs lasts long enough to be ended three times.
SLOW_DISK = """
import os, sys, time

def fsync(file, fsync=os.fsync):
    time.sleep(0.05)
    fsync(file)

if "build" in sys.orig_argv:
    os.fsync = fsync
"""
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
            trainer.wait(30)
        else:
            cluster.end_in(job, 1)
        assert state == "FAILED" or until(lambda job=job: SAVED in job_log(workspace, job), 60)
        assert cluster.wait(job, *ENDS, "COMPLETED", seconds=120) == state


def test_a_training_goes_on_after_every_kind_of_end(cluster: Cluster, tmp_path: Path) -> None:
    """Out of time, cancelled, killed: the fourth try ends with the weights of an undisturbed run, bit for bit."""
    workspace = on_slurm(tmp_path / "work")
    workspace.edit("workflow/studies/smoke.yaml", "    epochs: 2\n", "    epochs: 50\n")
    undisturbed = Workspace(Path(shutil.copytree(workspace.folder, tmp_path / "undisturbed")))
    undisturbed.plan()
    (plan,) = (undisturbed.folder / "results/artifacts/.plan/model").glob("digits-adversarial-seed0-*.json")
    target = f"results/artifacts/model/{plan.name}"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SLOW_DISK)
    process = start(workspace, cluster, target, PYTHONPATH=str(tmp_path / "site"))
    with ThreadPoolExecutor() as pool:
        beside = pool.submit(undisturbed.snakemake, target)
        _end_in_every_way(cluster, workspace)
        finish(process, workspace)
        beside.result()
    assert "resumes from its checkpoint" in training_log(workspace)
    disturbed, whole = (json.loads((each.folder / target).read_text()) for each in (workspace, undisturbed))
    assert (disturbed["key"], disturbed["content"]) == (whole["key"], whole["content"])
    print(f"a training ended by {', '.join(ENDS.values())} went on each time and is the same to the bit")
