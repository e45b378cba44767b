"""Stage evaluation: the accuracy of one model on one split of one data set, under one or several attacks."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robustfeatures.attacks.evaluating.evaluation import (
    BlockOutcome,
    count_correct,
    count_diagnostics,
    evaluate_block,
    load_split,
    split_blocks,
)
from robustfeatures.files import write_rows

if TYPE_CHECKING:
    from robustfeatures.attacks.evaluating.settings import Evaluation
    from robustfeatures.pipeline.run.job import Job

COLUMNS = ("metric", "label_shift", "eps", "attacks", "correct", "total", "classes", "most_frequent")
DIAGNOSTIC_COLUMNS = ("diagnostic", "label_shift", "eps", "attack", "count", "total")


def make(parameters: Evaluation, folder: Path, job: Job) -> None:
    """Write `rows.csv` and `diagnostics.csv` from `count_correct` and `count_diagnostics`, and `robust.npy`.

    `robust.npy` says which images of the split each row of rows.csv counts: bool (rows, N), packed along N by
    `numpy.packbits`.
    Images are evaluated in blocks; several jobs may share them.
    """
    data, device = job.dataset("data", parameters.split), job.planned_device
    rows_of_blocks = split_blocks(len(data), data.image_shape, device)
    # The name holds the kind of device, because each kind has its own size of blocks.
    blocks = {f"{device.type}-{number}": rows for number, rows in enumerate(rows_of_blocks)}
    # Not loaded to join blocks.
    evaluated = cache(lambda: load_split(parameters, job))
    expected = sum(len(blocks[name]) for name in job.blocks.missing(list(blocks)))
    done = 0

    def block(name: str, path: Path) -> None:
        nonlocal done
        numbers, before = blocks[name], done

        def progress(share: float) -> None:
            job.progress(before + int(share * len(numbers)), expected)

        with job.computing():
            outcome = evaluate_block(evaluated(), numbers, parameters, progress)
        _write_block(path, outcome)
        done += len(numbers)

    job.blocks.finish(list(blocks), block)
    if job.blocks.is_whole:
        with job.blocks.read():
            outcomes = [_read_block(job.blocks.path(name)) for name in blocks]
        rows, robust = zip(*count_correct(parameters, outcomes, data.labels, data.num_classes), strict=True)
        write_rows(folder / "rows.csv", COLUMNS, rows)
        np.save(folder / "robust.npy", np.packbits(np.stack(robust), axis=1))
        write_rows(folder / "diagnostics.csv", DIAGNOSTIC_COLUMNS, count_diagnostics(parameters, outcomes))


def _write_block(path: Path, block: BlockOutcome) -> None:
    counts = [[*key, value.tolist()] for key, value in block.diagnostics.items()]
    with path.open("wb") as file:
        np.savez(file, robust=block.robust, diagnostics=json.dumps(counts))


def _read_block(path: Path) -> BlockOutcome:
    with np.load(path) as block:
        counts = json.loads(str(block["diagnostics"]))
        diagnostics = {(shift, number, name): np.array(value) for shift, number, name, value in counts}
        return BlockOutcome(block["robust"], diagnostics)
