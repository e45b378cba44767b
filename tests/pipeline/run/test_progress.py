"""The progress of a long job: a bar on a terminal, lines in a log, and a file for `robustfeatures status`."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.run import progress
from robustfeatures.pipeline.run.progress import Progress
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.status import Running, find_state


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_and_status(tmp_path: Path, clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    store = Store(tmp_path)
    scratch = store.scratch("k")
    scratch.mkdir(parents=True)
    report = Progress("model", "digits-standard-seed0", scratch / "progress.json", terminal=False)
    with caplog.at_level(logging.INFO), store.lease("k"):
        # It goes on from a checkpoint at 400 of 1000; 100 images take 10 seconds.
        for done in range(400, 700, 10):
            report(done, 1000)
            clock[0] += 1.0
        running = find_state(Plan({}, ()), Artifacts(tmp_path / "artifacts"), store).running
    # Reports come every 5 seconds at most.
    assert len(caplog.messages) == 5
    assert caplog.messages[0].startswith("digits-standard-seed0: 45 % of 1.00k images, 10.0 images/s, 00:55 left")
    written = json.loads((scratch / "progress.json").read_text())
    assert written["stage"] == "model"
    assert written["share"] == pytest.approx(0.65)
    assert written["seconds_left"] == pytest.approx(35.0)
    left = pytest.approx(35.0)
    assert list(running) == [Running("k", 1, "model", "digits-standard-seed0", pytest.approx(0.65), left)]
    assert not find_state(Plan({}, ()), Artifacts(tmp_path / "artifacts"), store).running


def test_a_bar_on_a_terminal_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for terminal in (False, True):
        report = Progress("model", "a-label", tmp_path / "progress.json", terminal=terminal)
        report(50, 100)
        report(100, 100)
        assert ("a-label: 100%" in capsys.readouterr().err) == terminal


def test_a_report_that_cannot_be_written_ends_no_job(
    tmp_path: Path, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    report = Progress("model", "a-label", tmp_path / "file" / "progress.json", terminal=False)
    for done in (10, 20, 30):
        report(done, 100)
        clock[0] += 6.0
    assert sum("progress.json: " in message for message in caplog.messages) == 2
