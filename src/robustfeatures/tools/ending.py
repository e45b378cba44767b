"""The last lines of a run: where the page is and what it says, or why jobs failed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from robustfeatures.files import read_rows
from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.plan.tasks import Task
from robustfeatures.pipeline.report.verdicts import count_verdicts, describe_counts, find_sentences
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.tools.status import computing_share

# The line of an error in a job's log (`cli.app.log_to`).
ERROR = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3} ERROR (.*)$", flags=re.MULTILINE)
# What the command line logs before the traceback of a bug.
BUG = "unexpected error"


def describe_success(
    plan: Plan, artifacts: Artifacts, since: str, seconds: float, cores: int, gpu_places: int = 0
) -> Iterator[str]:
    """Lines on a finished run: what was computed, the verdicts and the page, as far as these were asked for.

    `since` is the time in UTC, in ISO format, at which the run began, `seconds` what it took on `cores` cores, with
    places for `gpu_places` jobs on GPUs.
    """
    yield computing_share(plan, artifacts, since, seconds, cores, gpu_places)
    results = artifacts.root.parent
    # The user may have removed a file that this run was not asked for.
    written = {
        view.kind: path
        for view in plan.views
        if artifacts.reference(view.artifact).exists() and (path := results / view.outputs[0]).exists()
    }
    if "claims" in written:
        yield f"claims: {_count_claims(written['claims'])}"
    if "report" in written:
        yield f"page: {written['report']}"


def _count_claims(path: Path) -> str:
    sentences = find_sentences([{**row, "control": row["control"] == "True"} for row in read_rows(path)])
    found = {
        kind: describe_counts(count_verdicts(sentences, control=control))
        for kind, control in (("", False), ("; controls: ", True))
    }
    return "".join(f"{kind}{counts}" for kind, counts in found.items() if counts) or "none"


def describe_failures(plan: Plan, tasks: Iterable[Task], artifacts: Artifacts, since: float) -> Iterator[str]:
    """For each failed job its message and its log, in two lines. A job that was killed has left no message.

    `since` is the time at which the run began, in seconds since 1970.
    """
    for name, output in _outputs(plan, tasks, artifacts):
        log = artifacts.root.parent / "logs" / f"{name}.log"
        if not output.exists() and (message := _last_error(log, since)) is not None:
            yield f"failed: {message}"
            yield f"  log: {log}"


def _outputs(plan: Plan, tasks: Iterable[Task], artifacts: Artifacts) -> Iterator[tuple[str, Path]]:
    """The name of each job's log, and a file that the job writes."""
    for task in tasks:
        for part in artifacts.parts(task.name, task.parts):
            yield f"{task.name}-{part.stem}", part
        yield task.name, artifacts.reference(task.name)
    for view in plan.views:
        yield view.artifact, artifacts.reference(view.artifact)


def _last_error(log: Path, since: float) -> str | None:
    """The last error in a log, if it is not older than `since`."""
    if not log.exists():
        return None
    text = log.read_text(encoding="utf-8", errors="replace")
    found = list(ERROR.finditer(text))
    if not found or datetime.fromisoformat(found[-1][1]).timestamp() < int(since):
        return None
    # The last line of a traceback names the exception.
    return text.splitlines()[-1] if found[-1][2] == BUG else found[-1][2]
