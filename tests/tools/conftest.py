"""Studies that tests may change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.tools.made import STUDIES


@pytest.fixture
def studies(tmp_path: Path) -> Path:
    folder = tmp_path / "studies"
    folder.mkdir()
    for name in ("digits*", "cifar10-mini", "at-odds-*", "feature-averaging", "not-bugs-cifar10*"):
        for path in STUDIES.glob(f"{name}.yaml"):
            shutil.copy(path, folder)
    return folder
