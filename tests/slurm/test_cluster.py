"""The test cluster itself: jobs run, GPUs are counted, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import REPOSITORY
from tests.slurm.cluster import GPUS, Cluster, parsed, until

pytestmark = pytest.mark.slow

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")


def test_a_job_runs_with_a_gpu_of_its_own(cluster: Cluster, tmp_path: Path) -> None:
    script = f"echo $CUDA_VISIBLE_DEVICES > {tmp_path}/$SLURM_JOB_ID; sleep 2"
    numbers = [cluster.submit("--gpus=1", f"--wrap={script}") for _ in range(GPUS)]
    for number in numbers:
        assert cluster.wait(number, *ENDED) == "COMPLETED"
    devices = sorted((tmp_path / str(number)).read_text().strip() for number in numbers)
    assert devices == [str(index) for index in range(GPUS)]


def test_steps_start_without_slurms_variables(cluster: Cluster) -> None:
    number = cluster.submit("--wrap=env --unset=SLURM_CONF srun --ntasks=1 true")
    assert cluster.wait(number, *ENDED) == "COMPLETED"


def test_more_gpu_jobs_than_gpus_wait_for_one_another(cluster: Cluster) -> None:
    with cluster.watch() as seen:
        numbers = [cluster.submit("--gpus=1", "--wrap=sleep 2") for _ in range(2 * GPUS)]
        for number in numbers:
            cluster.wait(number, *ENDED)
    assert seen.most_gpus == GPUS
    assert seen.states == dict.fromkeys(numbers, "COMPLETED")


def test_jobs_without_gpus_are_not_counted_as_using_them(cluster: Cluster) -> None:
    with cluster.watch() as seen:
        number = cluster.submit("--wrap=sleep 1")
        cluster.wait(number, *ENDED)
    assert seen.most_gpus == 0
    assert seen.states == {number: "COMPLETED"}


def test_gpus_of_a_type_are_counted() -> None:
    line = "JobId=7 JobName=a JobState=RUNNING Comment=rule_train   Nodes=n CPU_IDs=0 Mem=100 GRES=gpu:a100:2(IDX:0-1) "
    assert parsed(line).gpus == 2
    assert parsed(line.replace("GRES=gpu:a100:2(IDX:0-1)", "GRES=")).gpus == 0


def command_lines() -> list[str]:
    """The command lines of all processes; a zombie has none."""
    return [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]


@pytest.mark.usefixtures("cluster")
def test_nothing_is_left_when_the_test_process_is_killed(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from tests.slurm.cluster import running, until
with running() as cluster:
    number = cluster.submit("--wrap=srun --ntasks=1 sleep 1000")
    assert until(lambda: len(cluster.processes(number)) >= 4, 30)
    facts = [cluster.folder, *cluster.processes(number)]
    Path({str(tmp_path / "facts")!r}).write_text("\\n".join(map(str, facts)))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, timeout=90, check=False)
    assert done.returncode == -signal.SIGKILL
    folder, *processes = (tmp_path / "facts").read_text().split()
    assert until(lambda: not any(psutil.pid_exists(int(process)) for process in processes), 20)
    assert until(lambda: not Path(folder).exists(), 20)
    assert until(lambda: not any(folder in line for line in command_lines()), 20)
