"""A stand-in for NVIDIA's command, for tests on machines without GPUs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pretend_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Put an `nvidia-smi` that lists these GPUs before all commands; no environment variable hides one."""
    command = folder / "bin" / "nvidia-smi"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\nprintf '" + "".join(f"{name}\\n" for name in names) + "'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    # Set first, so that monkeypatch restores it whatever the test does.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
