"""Stage evaluation: the accuracy of one model on one split of one data set, under one or several attacks."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robustfeatures.attacks.evaluating.evaluation import (
    Judged,
    Row,
    counted,
    counted_diagnostics,
    judged,
    subject,
)

if TYPE_CHECKING:
    from robustfeatures.attacks.evaluating.settings import Evaluation
    from robustfeatures.pipeline.run.job import Job

COLUMNS = ("metric", "label_shift", "eps", "attacks", "correct", "total", "classes")
DIAGNOSTIC_COLUMNS = ("diagnostic", "label_shift", "eps", "attack", "count", "total")


def make(parameters: Evaluation, folder: Path, job: Job) -> None:
    """Write `rows.csv` and `diagnostics.csv`, as `counted` and `counted_diagnostics` say them.

    Blocks of images, which several jobs may share, are judged one by one.
    """
    attacked = subject(parameters, job)
    # Another kind of device cuts the images into other blocks, so the name holds the kind.
    blocks = {f"{job.device.type}-{number}": rows for number, rows in enumerate(attacked.blocks())}
    expected = sum(len(blocks[name]) for name in job.blocks.missing(list(blocks)))
    done = 0

    def block(name: str, path: Path) -> None:
        nonlocal done
        rows, before = blocks[name], done

        def progress(share: float) -> None:
            job.progress(before + int(share * len(rows)), expected)

        with job.computing():
            found = judged(attacked, rows, parameters, progress)
        _write_block(path, found)
        done += len(rows)

    job.blocks.finish(list(blocks), block)
    if job.blocks.is_whole:
        found = [_read_block(job.blocks.path(name)) for name in blocks]
        _write_rows(folder / "rows.csv", COLUMNS, counted(parameters, found, attacked.num_classes))
        _write_rows(folder / "diagnostics.csv", DIAGNOSTIC_COLUMNS, counted_diagnostics(parameters, found))


def _write_block(path: Path, block: Judged) -> None:
    counts = [[*key, value.tolist()] for key, value in block.diagnostics.items()]
    with path.open("wb") as file:
        np.savez(file, standing=block.standing, diagnostics=json.dumps(counts))


def _read_block(path: Path) -> Judged:
    with np.load(path) as block:
        counts = json.loads(str(block["diagnostics"]))
        diagnostics = {(shift, number, name): np.array(value) for shift, number, name, value in counts}
        return Judged(block["standing"], diagnostics)


def _write_rows(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Write rows as CSV. The columns are an argument, because a file may have no row."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
