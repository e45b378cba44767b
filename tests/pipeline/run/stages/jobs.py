"""Jobs without a plan behind them, for stages that are run by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from robustfeatures.pipeline.run.blocks import Blocks, Share
from robustfeatures.pipeline.run.job import Job, Surroundings
from robustfeatures.pipeline.run.progress import Progress
from robustfeatures.pipeline.store.store import Store


def job_in(folder: Path, inputs: Mapping[str, Path], store: Store) -> Job:
    """A job on the processor, given payloads by their roles, that leaves all it writes in the folder."""
    progress = Progress("stage", "test", folder / "progress.json", terminal=False)
    surroundings = Surroundings(store, folder, "cpu", 1)
    blocks = Blocks(store, folder.name, Share(1, 1))
    return Job(folder / "scratch", surroundings, inputs, blocks, progress)
