"""Jobs without a plan, to run stages alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from robustfeatures.pipeline.run.blocks import Blocks, Share
from robustfeatures.pipeline.run.device_models import DeviceModels
from robustfeatures.pipeline.run.job import Environment, Job
from robustfeatures.pipeline.run.progress import Progress
from robustfeatures.pipeline.store.store import Store

WHOLE = Share(1, 1)


def job_in(
    folder: Path,
    inputs: Mapping[str, Path],
    store: Store,
    share: Share = WHOLE,
    *,
    device: str = "cpu",
    planned_device: str | None = None,
    can_make: bool = True,
) -> Job:
    """A job with these inputs by role, which writes only below the folder.

    Its blocks are cut as for `planned_device`, by default `device`.
    """
    progress = Progress("stage", "test", folder / "progress.json", terminal=False)
    environment = Environment(store, folder, device, 1)
    blocks = Blocks(store, folder.name, share, DeviceModels(), can_make=can_make)
    return Job(folder / "scratch", environment, inputs, blocks, progress, planned_device)
