"""Processes that compute one thing together: what they return, and how they end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from robustfeatures.errors import StoppedError, UserError
from robustfeatures.pipeline.run.processes import run_together
from tests.conftest import REPOSITORY
from tests.pipeline.run.work import work
from tests.together import forked_together


def run(what: str) -> int:
    return run_together(work, (what,), 2, threads=1, gpus=False)


def test_the_first_returns_and_logs_arrive(caplog: pytest.LogCaptureFixture) -> None:
    assert run("wait") == 0
    assert "the second has begun to wait" in caplog.messages


@pytest.fixture(scope="module")
def forked() -> Iterator[None]:
    with forked_together("tests.pipeline.run.work"):
        yield


@pytest.mark.usefixtures("forked")
def test_errors_of_any_process_arrive() -> None:
    with pytest.raises(UserError, match=r"^a field: is wrong$"):
        run("refuse")
    with pytest.raises(OSError, match="No space left on device") as full:
        run("write")
    assert full.value.filename == "a file"


@pytest.mark.usefixtures("forked")
def test_an_unexpected_error_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RuntimeError, match="one of 2 processes failed"):
        run("divide")
    assert any("process 2 of 2 failed" in line and "ZeroDivisionError" in line for line in caplog.messages)


@pytest.mark.usefixtures("forked")
def test_one_that_is_killed_ends_the_others() -> None:
    with pytest.raises(RuntimeError, match=r"one of 2 processes failed; their exit codes are -9, -9"):
        run("die")


@pytest.mark.usefixtures("forked")
def test_a_request_to_end_reaches_the_first() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(StoppedError, match="stopped by SIGTERM; run again"):
        run("ask")
    assert signal.getsignal(signal.SIGTERM) is before


def test_they_end_with_their_parent(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\nfrom robustfeatures.pipeline.run.processes import run_together\n"
        "from tests.pipeline.run.work import wait_for_ever\n"
        f"run_together(wait_for_ever, (Path({str(tmp_path)!r}),), 2, threads=1, gpus=False)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY)
    until = time.monotonic() + 120
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    parent.kill()
    parent.wait()
    started = [int(path.name) for path in tmp_path.iterdir()]
    assert len(started) == 2
    until = time.monotonic() + 10
    while any(map(psutil.pid_exists, started)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(psutil.pid_exists, started))
