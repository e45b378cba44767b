"""Stage measurement: rows of any kind, from a module of `theory/` or `measurements/`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.files import write_rows

if TYPE_CHECKING:
    from robustfeatures.pipeline.run.job import Job
    from robustfeatures.pipeline.study.parameters import Measurement


def make(parameters: Measurement, folder: Path, job: Job) -> None:
    """Write `rows.csv`: the rows that the module's `measure(run, **settings)` returns, with the first row's columns."""
    module = import_module(f"robustfeatures.{parameters.module}")
    with job.computing():
        rows = module.measure(job, **parameters.settings)
    write_rows(folder / "rows.csv", list(rows[0]), rows)
