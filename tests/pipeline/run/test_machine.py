"""A module of the package in a process of its own: what it prints, and the last line of what goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from robustfeatures.errors import UserError
from robustfeatures.pipeline.run.machine import run_module


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "speaks.py").write_text("import sys; print('yes', *sys.argv[1:])")
    (tmp_path / "fails.py").write_text("raise ValueError('no')")
    (tmp_path / "vanishes.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_what_a_module_prints() -> None:
    assert run_module("speaks", "a", "b c") == "yes a b c\n"


@pytest.mark.parametrize(
    ("module", "message"),
    [("fails", "ValueError: no"), ("vanishes", "vanishes ended with status -9")],
)
def test_a_failure_is_one_line(module: str, message: str) -> None:
    """A process that was killed for its memory writes nothing."""
    with pytest.raises(UserError) as caught:
        run_module(module)
    assert str(caught.value) == message
