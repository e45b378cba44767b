"""A training on a real Slurm that is ended in every way a cluster knows."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from tests.conftest import Workspace
from tests.slurm.cluster import Cluster, until
from tests.slurm.submitting import finish, on_slurm, start


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


SAVED = "stopped by SIGTERM with a checkpoint saved"
ENDS = {"CANCELLED": "scancel", "FAILED": "SIGKILL", "TIMEOUT": "its time limit"}


def test_a_training_goes_on_after_every_kind_of_end(cluster: Cluster, tmp_path: Path) -> None:
    """Cancelled, killed, out of time: the fourth try ends with the weights of an undisturbed run, bit for bit."""
    workspace = on_slurm(tmp_path / "work")
    workspace.edit("workflow/studies/smoke.yaml", "    epochs: 2\n", "    epochs: 400\n")
    undisturbed = Workspace(Path(shutil.copytree(workspace.folder, tmp_path / "undisturbed")))
    undisturbed.snakemake("-n")
    (plan,) = (undisturbed.folder / "results/artifacts/.plan/model").glob("digits-adversarial-seed0-*.json")
    target = f"results/artifacts/model/{plan.name}"
    process = start(workspace, cluster, target)
    beside = ThreadPoolExecutor().submit(undisturbed.snakemake, target)
    jobs: set[int] = set()
    for state in ENDS:
        job, trainer = in_training(cluster, workspace, jobs)
        # Snakemake begins a new log with each try.
        assert ("goes on from its checkpoint" in training_log(workspace)) == bool(jobs)
        jobs.add(job)
        if state == "CANCELLED":
            cluster.cancel(job)
        elif state == "FAILED":
            trainer.send_signal(signal.SIGKILL)
        else:
            cluster.end_in(job, 1)
        assert state == "FAILED" or until(lambda: SAVED in training_log(workspace), 60)
        assert cluster.wait(job, *ENDS, "COMPLETED", seconds=120) == state
    finish(process, workspace)
    assert "goes on from its checkpoint" in training_log(workspace)
    beside.result()
    disturbed, whole = (json.loads((each.folder / target).read_text()) for each in (workspace, undisturbed))
    assert (disturbed["key"], disturbed["content"]) == (whole["key"], whole["content"])
    print(f"a training ended by {', '.join(ENDS.values())} went on each time and is the same to the bit")
