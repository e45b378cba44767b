"""What the stages keep beside a result: the seconds of all jobs, and the digest of the files that were read."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from robustfeatures.data.folder import compute_digest
from robustfeatures.data.settings import Data
from robustfeatures.pipeline.run.stages import data
from robustfeatures.pipeline.run.stages.model import _checkpoints
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.store.verified import read_state, recall_digest
from tests.pipeline.run.stages.jobs import job_in


def test_a_training_counts_the_seconds_of_the_jobs_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    first, second = (job_in(tmp_path, {}, Store(tmp_path / "store")) for _ in range(2))
    first.scratch.mkdir()
    # It ends before its result is published.
    with _checkpoints(first) as kept:
        now += 5.0
        kept.save({"step": 1})
        now += 1.0
    with _checkpoints(second) as kept:
        kept.load(torch.device("cpu"))
        now += 2.0
    assert second.computing_seconds == 7.0


def test_a_plan_knows_the_digest_that_the_data_job_compared(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    images = tmp_path / "images"
    for name in ("a", "b"):
        (images / name).mkdir(parents=True)
        for number in range(20):
            pixels = random.integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(images / name / f"{number}.png")
    own = Data(source="folder", path=str(images), test=0.25, validation=0.15)
    sha256 = compute_digest(own)
    own = Data(source="folder", path=str(images), test=0.25, validation=0.15, sha256=sha256)
    assert recall_digest("folder", read_state(images)) is None
    data.make(own, tmp_path, job_in(tmp_path, {}, Store(tmp_path / "store")))
    assert recall_digest("folder", read_state(images)) == sha256
    (images / "a" / "0.png").touch()
    assert recall_digest("folder", read_state(images)) is None
