"""The workflow on a real Slurm: a copy filled in as a user would, its main process, and what it computed."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tests.conftest import Workspace, workspace_in
from tests.slurm.cluster import Cluster, repeated

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


def start(workspace: Workspace, cluster: Cluster, *targets: str, **variables: str) -> subprocess.Popen[bytes]:
    """Snakemake's main process; what it prints goes to `snakemake.log` in the workspace.

    `variables` are set in its environment and in that of its jobs.
    """
    with (workspace.folder / "snakemake.log").open("ab") as log:
        return subprocess.Popen(
            [*COMMAND, *targets],
            cwd=workspace.folder,
            env={**cluster.environment, "ROBUSTFEATURES_CHECKPOINT_SECONDS": "0", **variables},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def finish(process: subprocess.Popen[bytes], workspace: Workspace) -> None:
    code = process.wait(LIMIT_SECONDS)
    assert code == 0, (workspace.folder / "snakemake.log").read_text()[-6000:]


@contextmanager
def count_computations(*workspaces: Workspace) -> Iterator[Counter[str]]:
    """How often the computation of each payload began, by key, according to the jobs' logs; filled in on leaving.

    Snakemake deletes a log when it starts the job again. An open file keeps it, and what its job still writes.
    """
    counts: Counter[str] = Counter()
    logs: dict[int, TextIO] = {}

    def open_new() -> None:
        for workspace in workspaces:
            for path in (workspace.folder / "results/logs").rglob("*.log"):
                with contextlib.suppress(FileNotFoundError):
                    log = path.open()
                    if logs.setdefault(os.fstat(log.fileno()).st_ino, log) is not log:
                        log.close()

    with repeated(open_new):
        yield counts
    for log in logs.values():
        counts.update(re.findall(r": computing (\w+)$", log.read(), flags=re.MULTILINE))
        log.close()
