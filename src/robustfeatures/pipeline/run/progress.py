"""The progress of a job: a bar on a terminal, lines in a log file, and a file for `robustfeatures status`."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from robustfeatures.files import write_json

log = logging.getLogger(__name__)

# Seconds between two reports to the log and to `robustfeatures status`.
REPORT_EVERY = 5.0
LINE = "{percentage:.0f} % of {total_fmt} images, {rate_fmt}, {remaining} left"
LINE_OF_PARTS = "{percentage:.0f} %, {remaining} left"


class Progress:
    """Reports progress. It is called with what is done and the total, and is cheap enough for every batch.

    Most stages count images, each once per epoch, attack, radius or step. Measurements count what they go through.
    """

    def __init__(self, stage: str, label: str, path: Path, *, terminal: bool) -> None:
        self.stage = stage
        self.label = label
        self.path = path
        self.terminal = terminal
        self.counts_images = stage != "measurement"
        self._bar: tqdm[Any] | None = None
        self._reported = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Report `done` of `total`."""
        if self._bar is None:
            # A job that continues from a checkpoint measures its rate from there.
            self._bar = tqdm(
                desc=self.label,
                total=total,
                initial=done,
                unit=" images" if self.counts_images else " parts",
                unit_scale=self.counts_images,
                disable=not self.terminal,
            )
            self._first, self._began = done, time.monotonic()
        self._bar.update(done - self._bar.n)
        if done >= total:
            self._bar.close()
        now = time.monotonic()
        if now - self._reported >= REPORT_EVERY:
            self._reported = now
            self._report(done, total, now - self._began)

    def _report(self, done: int, total: int, elapsed: float) -> None:
        rate = (done - self._first) / elapsed if elapsed > 0 and done > self._first else None
        line = tqdm.format_meter(
            done,
            total,
            elapsed,
            unit=" images",
            unit_scale=True,
            rate=rate,
            bar_format=LINE if self.counts_images else LINE_OF_PARTS,
            initial=self._first,
        )
        log.info("%s: %s", self.label, line)
        report = {
            "stage": self.stage,
            "label": self.label,
            "share": done / total,
            "seconds_left": None if rate is None else (total - done) / rate,
            "process": os.getpid(),
        }
        try:
            write_json(self.path, report, durable=False)
        except OSError as error:
            # A report is no reason to end a job. If the disk is really full, its next result says so.
            log.warning("%s: %s", self.path, error.strerror)
