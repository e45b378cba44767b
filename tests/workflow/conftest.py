"""The smoke study, built once; each test gets a copy of its own to change."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Workspace, workspace_in


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The workflow with the smoke study built; tests must leave it as it is."""
    built = workspace_in(tmp_path_factory.mktemp("smoke") / "work")
    built.edit("config.yaml", "study: digits", "study: smoke")
    built.snakemake()
    return built


@pytest.fixture
def copy_of_smoke(smoke: Workspace, tmp_path: Path) -> Callable[[], Workspace]:
    """Makes a copy of the built smoke study."""

    def copy() -> Workspace:
        shutil.copytree(smoke.folder, tmp_path / "copy", symlinks=True)
        return Workspace(tmp_path / "copy")

    return copy


@pytest.fixture
def built(copy_of_smoke: Callable[[], Workspace]) -> Workspace:
    return copy_of_smoke()
