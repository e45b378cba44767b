"""`python -m tests.benchmarks gpu`: what it says without a GPU, and how its steps end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
import typer

from tests.benchmarks.gpu import Step, plan_steps, run_all, run_step


def test_without_a_gpu_it_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(typer.Exit) as raised:
        run_all(tmp_path / "out", tmp_path)
    assert raised.value.exit_code == 1
    assert capsys.readouterr().err == "tests.benchmarks gpu: torch finds no GPU here\n"
    assert not (tmp_path / "out").exists()


def test_the_steps_take_half_an_hour_at_most() -> None:
    steps = plan_steps(Path("out"), Path("raw"), ())
    assert steps[0].name == "tests"
    assert sum(step.minutes for step in steps) <= 30


@pytest.mark.parametrize(
    ("code", "minutes", "ended"),
    [
        ("print('a result', flush=True)", 1, "done"),
        ("print('a result', flush=True); raise SystemExit(3)", 1, "failed"),
        ("print('a result', flush=True); import time; time.sleep(600)", 0.05, "stopped after 0.05 minutes"),
    ],
)
def test_each_step_writes_its_result_and_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, minutes: float, ended: str
) -> None:
    began = time.monotonic()
    done = run_step(Step("measured", minutes, ("-c", code)), 4, tmp_path)
    assert time.monotonic() - began < 60
    assert done == (ended == "done")
    assert (tmp_path / "gpu-4-measured.txt").read_text() == "a result\n"
    assert capsys.readouterr().out.startswith(f"measured: {ended}, ")
