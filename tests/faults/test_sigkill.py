"""The smoke study under SIGKILL at random moments: it always completes when it is run again, with the same content."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

import psutil
import pytest

from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.gc import leftovers
from robustfeatures.tools.verify import verify
from tests.conftest import Workspace

KILLS = 6
VICTIMS = ("job", "workflow", "both")
# A kill comes up to so many seconds after the start of the first job. Of the kills of the whole workflow, one in EARLY
# comes up to so many seconds after the start of Snakemake.
SECONDS = 3.0
EARLY = 4


def contents(workspace: Workspace) -> dict[str, str]:
    """The content digest of every artifact of the four stages by reference."""
    found = {}
    for path in sorted((workspace.folder / "results" / "artifacts").glob("*/*.json")):
        reference = json.loads(path.read_text())
        if "content" in reference:
            found[f"{path.parent.name}/{path.name}"] = reference["content"]
    return found


def tables(workspace: Workspace) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (workspace.folder / "results/smoke/tables").glob("*")}


def jobs_below(workflow: psutil.Process) -> list[psutil.Process]:
    """The processes of robustfeatures that Snakemake started."""
    found = []
    for child in workflow.children(recursive=True):
        try:
            if child.name().startswith("python") and "robustfeatures" in child.cmdline():
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def wait_for_a_job(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        workflow = psutil.Process(process.pid)
        while process.poll() is None and not jobs_below(workflow):
            time.sleep(0.1)


def strike(process: subprocess.Popen[bytes], victim: str, chance: random.Random) -> bool:
    """Kill a job, the workflow, or both; returns False if nothing was left to kill."""
    try:
        workflow = psutil.Process(process.pid)
        jobs = jobs_below(workflow)
        if process.poll() is not None or (victim == "job" and not jobs):
            return False
        if victim == "job":
            chance.choice(jobs).kill()
        elif victim == "workflow":
            workflow.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return False
    return True


@pytest.mark.slow
def test_kills(workspace: Workspace, smoke: Workspace) -> None:
    chance = random.Random(0)  # noqa: S311
    kills: Counter[str] = Counter()
    completed = 0
    log = (workspace.folder / "snakemake.log").open("wb")
    command = [sys.executable, "-m", "snakemake", "--cores", "2"]
    environment = {**os.environ, "ROBUSTFEATURES_CHECKPOINT_SECONDS": "0"}
    while kills.total() < KILLS:
        process = subprocess.Popen(
            command, cwd=workspace.folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        victim = VICTIMS[kills.total() % len(VICTIMS)]
        if victim == "job" or kills[victim] % EARLY:
            wait_for_a_job(process)
        time.sleep(chance.uniform(0.0, SECONDS))
        if strike(process, victim, chance):
            kills[victim] += 1
        code = process.wait()
        if code == 0:
            completed += 1
            check(workspace, smoke)
            forget(workspace)
        if code < 0:
            unlock(workspace, really=kills.total() < len(VICTIMS))
    subprocess.run(command, cwd=workspace.folder, stdout=log, stderr=log, check=True)
    check(workspace, smoke)
    print(f"{kills.total()} kills ({dict(kills)}); completed {completed + 1} times, each time with the same content")
    assert set(kills) == set(VICTIMS)


def unlock(workspace: Workspace, *, really: bool) -> None:
    """Unlock the folder, as Snakemake requires after its own death: a few times by its command, then directly."""
    if really:
        workspace.snakemake("--unlock")
    else:
        shutil.rmtree(workspace.folder / ".snakemake" / "locks", ignore_errors=True)


def forget(workspace: Workspace) -> None:
    """Remove all results, so that the next run begins from nothing."""
    for path in (workspace.folder / "results").rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(workspace.folder / "results")


def check(workspace: Workspace, smoke: Workspace) -> None:
    """The study is complete, undamaged, and equal to one without any kill."""
    assert contents(workspace) == contents(smoke)
    assert tables(workspace) == tables(smoke)
    assert list(verify(Store(workspace.store))) == []
    # A kill just after publication may leave the folder of unfinished work; there is a command for it.
    left = set((workspace.store / ".partial").glob("*/"))
    assert left == set(leftovers(Store(workspace.store), unfinished=False))
