"""The smoke study, built once; each test gets a copy of its own to change."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from tests.conftest import Workspace, workspace_in


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Workspace:
    """The workflow with the smoke study built, once for all test processes; tests must leave it as it is."""
    shared = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        shared = shared.parent
    with FileLock(shared / "smoke.lock"):
        if (shared / "smoke").exists():
            return Workspace(shared / "smoke" / "work")
        (shared / "building").mkdir()
        built = workspace_in(shared / "building" / "work")
        built.edit("config.yaml", "study: digits", "study: smoke")
        built.snakemake()
        (shared / "building").rename(shared / "smoke")
    return Workspace(shared / "smoke" / "work")


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
