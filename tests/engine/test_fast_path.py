"""`gpu_fast_path` of config.yaml: on in every job unless it is set to false."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from robustfeatures.engine import fast_path
from robustfeatures.engine.fast_path import has_fast_path
from robustfeatures.pipeline.run.job import Environment
from robustfeatures.pipeline.run.machine import prepare_torch
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.config import Config
from tests.conftest import Workspace


@pytest.mark.parametrize("on", [False, True])
def test_a_job_takes_it_on_a_gpu_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: bool) -> None:
    monkeypatch.setattr(fast_path, "_on", not on)
    prepare_torch(1, gpu_fast_path=on)
    assert has_fast_path(torch.device("cuda")) == on
    assert not has_fast_path(torch.device("cpu"))


def test_the_configuration_reaches_every_job(workspace: Workspace) -> None:
    assert Config(study="smoke").gpu_fast_path
    assert Environment(Store(Path()), Path(), "cpu", 1).gpu_fast_path
    for on in (True, False):
        commands = workspace.snakemake("-n", "-p").stdout
        assert commands.count(f"ROBUSTFEATURES_GPU_FAST_PATH={on:d}") >= commands.count(" build ") > 10
        assert f"ROBUSTFEATURES_GPU_FAST_PATH={not on:d}" not in commands
        if on:
            workspace.edit("config.yaml", "gpu_fast_path: true", "gpu_fast_path: false")
