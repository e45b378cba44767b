"""A training killed with SIGKILL at random moments goes on from its checkpoint and ends with the same weights."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

from tests.conftest import Workspace

KILLS = 4


def test_sigkill_at_random_moments(workspace: Workspace) -> None:
    # Long enough to be hit, an epoch a checkpoint.
    workspace.edit("workflow/studies/smoke.yaml", "    epochs: 2\n", "    epochs: 40\n")
    workspace.snakemake("results/smoke/figures/A10.png")
    artifacts = workspace.folder / "results" / "artifacts"
    (reference,) = (artifacts / "model").glob("digits-adversarial-seed0-*.json")
    whole = json.loads(reference.read_text())
    files = json.loads((workspace.store / whole["key"] / "manifest.json").read_text())["files"]
    reference.unlink()
    removed = workspace.command("gc")  # lists nothing it should not: the study is not complete
    assert removed.returncode == 1

    command = [
        sys.executable,
        "-m",
        "robustfeatures",
        "build",
        str(reference.relative_to(workspace.folder)),
        "--store",
        "results/other-store",
        "--device",
        "cpu",
        "--log",
        "results/killed.log",
    ]
    environment = {
        "PYTHONPATH": str(workspace.folder / "src"),
        "PATH": "/usr/bin:/bin",
        "ROBUSTFEATURES_CHECKPOINT_SECONDS": "0",
    }
    # Another store, which has the data but not the model.
    other = workspace.folder / "results" / "other-store"
    (data,) = (artifacts / "data").glob("*.json")
    key = json.loads(data.read_text())["key"]
    other.mkdir()
    (other / key).symlink_to(workspace.store / key)

    chance, kills, resumed = random.Random(0), 0, 0  # noqa: S311
    checkpoint = other / ".partial" / whole["key"] / "checkpoint.pt"
    while kills < KILLS:
        process = subprocess.Popen(command, cwd=workspace.folder, env=environment, start_new_session=True)
        resumed += checkpoint.exists()
        began = time.monotonic()
        seen = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        while process.poll() is None and time.monotonic() - began < 60:
            if checkpoint.exists() and checkpoint.stat().st_mtime_ns != seen:
                break
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.3))
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        kills += 1
        assert not reference.exists()
        assert not (other / whole["key"]).exists()
    assert resumed == KILLS - 1
    subprocess.run(command, cwd=workspace.folder, env=environment, check=True)
    again = json.loads(reference.read_text())
    assert (again["key"], again["content"]) == (whole["key"], whole["content"])
    finished = json.loads((other / whole["key"] / "manifest.json").read_text())["files"]
    assert finished == files
    assert not checkpoint.parent.exists()
