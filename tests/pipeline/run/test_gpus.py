"""GPUs of one machine: counted without torch, and one for each job, with a stand-in for NVIDIA's command."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robustfeatures.pipeline.run import gpus
from tests.conftest import Workspace

HOLD = (
    "import os, sys, time; from robustfeatures.pipeline.run.gpus import take_gpu\n"
    "with take_gpu():\n"
    "    began = time.monotonic(); time.sleep(1.5)\n"
    "    print(os.environ['CUDA_VISIBLE_DEVICES'], began, time.monotonic())\n"
)


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose `nvidia-smi` lists two GPUs; locks lie in a folder of the test."""
    command = tmp_path / "bin" / "nvidia-smi"
    command.parent.mkdir()
    command.write_text('#!/bin/sh\nprintf "0\\n1\\n"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # Set first, so that monkeypatch restores it whatever the test does.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    return tmp_path


def test_what_is_present(two_gpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpus.visible_gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpus.visible_gpus() == ["1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus.visible_gpus() == []


def test_jobs_at_once_never_share_a_gpu(two_gpus: Path) -> None:
    jobs = [subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    held = [job.communicate()[0].split() for job in jobs]
    assert {gpu for gpu, *_ in held} == {"0", "1"}
    for gpu in ("0", "1"):
        times = sorted((float(began), float(ended)) for name, began, ended in held if name == gpu)
        assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(times))


def test_a_gpu_is_free_again_after_its_job_was_killed(two_gpus: Path) -> None:
    held = subprocess.Popen([sys.executable, "-c", HOLD.replace("1.5", "60")])
    lock = two_gpus.glob("robustfeatures-*/gpu-0.lock")
    until = time.monotonic() + 20
    while not list(lock) and time.monotonic() < until:
        time.sleep(0.1)
    held.kill()
    held.wait()
    with gpus.take_gpu():
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"


def test_a_study_on_two_gpus_plans_a_gpu_for_each_training(workspace: Workspace, two_gpus: Path) -> None:
    planned = workspace.snakemake("-n", "--config", "device=cuda").stdout
    assert planned.count("gpu=1") == 12 + 8 + 10
    alone = workspace.snakemake("-n", "--config", "device=cpu").stdout
    assert "gpu=1" not in alone
