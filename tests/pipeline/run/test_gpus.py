"""GPUs of one machine: counted without torch, and one for each job, with a stand-in for NVIDIA's command."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from robustfeatures.errors import UserError
from robustfeatures.pipeline.run import gpus
from tests.nvidia_smi import pretend_gpus

HOLD = (
    "import os, sys, time; from robustfeatures.pipeline.run.gpus import take_gpus\n"
    "with take_gpus(int(sys.argv[1]), ['GPU-a', 'GPU-b'], int(sys.argv[2])):\n"
    "    began = time.monotonic(); time.sleep(1.5)\n"
    "    print(os.environ['CUDA_VISIBLE_DEVICES'], began, time.monotonic())\n"
)


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose `nvidia-smi` lists two GPUs; locks lie in a folder of the test."""
    pretend_gpus(tmp_path, monkeypatch, "GPU-a", "GPU-b")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # Python remembers the folder.
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_what_is_present(two_gpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpus.visible_gpus() == ["GPU-a", "GPU-b"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpus.visible_gpus() == ["1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus.visible_gpus() == []


@pytest.mark.parametrize("jobs_per_gpu", [1, 2])
def test_no_more_jobs_share_a_gpu_than_may(two_gpus: Path, jobs_per_gpu: int) -> None:
    command = [sys.executable, "-c", HOLD]
    jobs = [
        subprocess.Popen([*command, count, str(jobs_per_gpu)], stdout=subprocess.PIPE, text=True) for count in "112121"
    ]
    held = [job.communicate()[0].split() for job in jobs]
    assert "GPU-a,GPU-b" in {",".join(sorted(names.split(","))) for names, *_ in held}
    most = 0
    for gpu in ("GPU-a", "GPU-b"):
        times = [(float(began), float(ended)) for names, began, ended in held if gpu in names]
        at_once = [sum(began <= moment < ended for began, ended in times) for moment, _ in times]
        assert max(at_once) <= jobs_per_gpu
        most = max(most, *at_once)
    assert most == jobs_per_gpu


def test_the_first_jobs_do_not_share(two_gpus: Path) -> None:
    with gpus.take_gpus(1, ["GPU-a", "GPU-b"], 2):
        command = [sys.executable, "-c", HOLD.replace("1.5", "0"), "1", "2"]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0] == "GPU-b"


def test_a_gpu_is_free_again_after_its_job_was_killed(two_gpus: Path) -> None:
    held = subprocess.Popen([sys.executable, "-c", HOLD.replace("1.5", "60"), "2", "1"])
    lock = two_gpus.glob("robustfeatures-*/GPU-b-0.lock")
    until = time.monotonic() + 20
    while not list(lock) and time.monotonic() < until:
        time.sleep(0.1)
    held.kill()
    held.wait()
    with gpus.take_gpus(1, ["GPU-a", "GPU-b"]):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-a"


def test_more_gpus_than_there_are(two_gpus: Path) -> None:
    with pytest.raises(UserError) as refusal, gpus.take_gpus(3, ["GPU-a", "GPU-b"]):
        pass
    assert str(refusal.value) == "training.gpus_per_training: 3 GPUs are needed, but this machine has 2"
