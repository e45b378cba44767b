"""Jobs without a plan, to run stages alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from robustfeatures.pipeline.run.blocks import Blocks, Share
from robustfeatures.pipeline.run.job import Environment, Job
from robustfeatures.pipeline.run.progress import Progress
from robustfeatures.pipeline.store.store import Store


def job_in(folder: Path, inputs: Mapping[str, Path], store: Store) -> Job:
    """A job on the CPU with these inputs by role, which writes only below the folder."""
    progress = Progress("stage", "test", folder / "progress.json", terminal=False)
    environment = Environment(store, folder, "cpu", 1)
    blocks = Blocks(store, folder.name, Share(1, 1))
    return Job(folder / "scratch", environment, inputs, blocks, progress)
