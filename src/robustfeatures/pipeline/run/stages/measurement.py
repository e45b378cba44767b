"""Stage measurement: rows of any kind, from a module of `theory/` or `measurements/`."""

from __future__ import annotations

import csv
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robustfeatures.pipeline.run.job import Job
    from robustfeatures.pipeline.study.parameters import Measurement


def make(parameters: Measurement, folder: Path, job: Job) -> None:
    """Write `rows.csv`: the rows that the module's `measure(run, **settings)` returns, with the first row's columns."""
    module = import_module(f"robustfeatures.{parameters.module}")
    with job.computing():
        rows = module.measure(job, **parameters.settings)
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
