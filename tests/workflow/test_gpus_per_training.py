"""A study whose trainings have two processes, on the processor: stopped, killed, and gone on with bit for bit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from robustfeatures.files import read_json
from tests.conftest import Workspace

STUDY = "workflow/studies/smoke.yaml"
NETWORK = '''
from torch import nn


def convnet(*, num_classes, image_shape, width=8):
    """A convolution with batch norm; the representation is the pooled image."""
    return nn.Sequential(
        nn.Conv2d(image_shape[0], width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, num_classes),
    )
'''


def plan(workspace: Workspace, epochs: int) -> str:
    """Plan the smoke study with a network of one's own; returns the reference of its adversarial network."""
    (workspace.folder / STUDY).with_name("my_networks.py").write_text(NETWORK)
    workspace.edit(STUDY, "{name: small-cnn, width: 16}", "{name: 'my_networks.py:convnet', width: 8}")
    workspace.edit(STUDY, "    epochs: 2\n", f"    epochs: {epochs}\n    gpus_per_training: 2\n")
    workspace.snakemake("-n")
    (planned,) = (workspace.folder / "results/artifacts/.plan/model").glob("digits-adversarial-seed0-*.json")
    return f"results/artifacts/model/{planned.name}"


def start(workspace: Workspace, reference: str) -> subprocess.Popen[str]:
    """A job that saves a checkpoint after each step."""
    return subprocess.Popen(
        [sys.executable, "-m", "robustfeatures", "build", reference, "--log", "job.log"],
        cwd=workspace.folder,
        env={**os.environ, "PYTHONPATH": str(workspace.folder / "src"), "ROBUSTFEATURES_CHECKPOINT_SECONDS": "0"},
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_checkpoint(workspace: Workspace, job: subprocess.Popen[str], since: float) -> None:
    until = time.monotonic() + 240
    while time.monotonic() < until and job.poll() is None:
        if workspace.last_checkpoint() > since:
            return
        time.sleep(0.05)
    raise AssertionError(job.communicate()[1])


def result(workspace: Workspace, reference: str, store: Path) -> dict[str, bytes]:
    key = read_json(workspace.folder / reference)["key"]
    return {path.name: path.read_bytes() for path in (store / key).iterdir() if path.name != "manifest.json"}


@pytest.mark.slow
def test_a_killed_and_stopped_training_goes_on_bit_for_bit(workspace: Workspace) -> None:
    reference = plan(workspace, epochs=12)
    (data,) = (workspace.folder / "results/artifacts/.plan/data").glob("*.json")
    done = workspace.command("build", f"results/artifacts/data/{data.name}")
    assert done.returncode == 0, done.stderr
    other = workspace.folder / "other-store"
    shutil.copytree(workspace.store, other)
    done = workspace.command("build", reference, "--store", str(other))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    expected = result(workspace, reference, other)
    assert expected.keys() >= {"model.safetensors", "history.csv"}
    (workspace.folder / reference).unlink()

    killed = start(workspace, reference)
    wait_for_checkpoint(workspace, killed, 0.0)
    together = psutil.Process(killed.pid).children(recursive=True)
    assert len(together) >= 2
    killed.kill()
    killed.wait()
    _, alive = psutil.wait_procs(together, timeout=20)
    assert not alive

    stopped = start(workspace, reference)
    wait_for_checkpoint(workspace, stopped, time.time())
    stopped.send_signal(signal.SIGTERM)
    message = stopped.communicate()[1]
    assert stopped.returncode == 1
    assert message.endswith("stopped by SIGTERM with a checkpoint saved; run again, and the training goes on from it\n")
    assert len(message.splitlines()) == 1
    assert not (workspace.folder / reference).exists()

    done = workspace.command("build", reference, "--log", "job.log")
    assert done.returncode == 0, done.stderr
    assert result(workspace, reference, workspace.store) == expected
    log = (workspace.folder / "job.log").read_text()
    assert log.count("the training resumes from its checkpoint") == 2


@pytest.mark.slow
def test_snakemake_makes_it(workspace: Workspace) -> None:
    """Its job has a core for each process; the record says how long the training took."""
    reference = plan(workspace, epochs=1)
    printed = workspace.snakemake("--printshellcmds", reference).stderr
    assert "--threads 2" in printed
    assert read_json(workspace.folder / reference)["built"]["computing_seconds"] > 0
