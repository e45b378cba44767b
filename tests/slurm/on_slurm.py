"""The workflow on a real Slurm: a copy filled in as a user would, its main process, and what it computed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.conftest import Workspace, workspace_in
from tests.slurm.cluster import Cluster

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
