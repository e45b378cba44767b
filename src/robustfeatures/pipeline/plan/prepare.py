"""A plan made ready for Snakemake: written down for the jobs, and its references brought in line with the store."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from robustfeatures.files import read_json, write_json
from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.plan.tasks import Task, task_record
from robustfeatures.pipeline.store.references import Artifacts, parts_are_kept, read_reference, resolve, write_batch
from robustfeatures.pipeline.store.store import Store


def prepare(plan: Plan, tasks: Sequence[Task], artifacts: Artifacts, store: Store) -> None:
    """Write down the plan for the jobs, and bring the references in line with the store.

    References whose payload is gone are dropped; where the store already has the payload of a planned recipe, its
    reference is written here, so that no job is needed for it. A reference that exists is right for ever, so none may
    look out of date: each is made at least as new as what it builds on. (Snakemake's `ancient()` would say so too, but
    with it a job whose outputs are missing is passed over when one that it builds on runs for another reason.) For the
    same reason none may bear a time that is still to come, left from before the clock was set back.
    """
    _write_plans(plan, tasks, artifacts)
    for task in tasks:
        for name in task.artifacts:
            reference = artifacts.reference(name)
            if reference.exists() and store.manifest(read_reference(reference)["key"]) is None:
                reference.unlink()
            if not reference.exists():
                resolve(artifacts, store, plan.recipes[name].record())
        tracked = artifacts.reference(task.name)
        whole = all(artifacts.reference(name).exists() for name in task.artifacts)
        if task.is_batch and whole and not tracked.exists():
            write_batch(tracked, task.artifacts)
        elif task.is_batch and not whole:
            tracked.unlink(missing_ok=True)
        parts = artifacts.parts(task.name, task.parts)
        if not whole:
            _drop_lost_parts(parts, store)
        needed = [artifacts.reference(below) for below in task.inputs]
        measured = [artifacts.benchmark(f"{task.name}-{part.stem}") for part in parts]
        whole_measured = artifacts.benchmark(task.name)
        _not_in_the_future([*parts, *measured, tracked, whole_measured])
        _make_as_new_as([*parts, *measured], needed)
        _make_as_new_as([tracked, whole_measured], [*needed, *parts])
    home = {name: task.name for task in tasks for name in task.artifacts}
    results = artifacts.root.parent
    for view in plan.views:
        needed = [artifacts.reference(home.get(name, name)) for name in view.inputs]
        sources = [artifacts.plan(view.artifact), *needed]
        reference = artifacts.reference(view.artifact)
        files = [*(results / name for name in view.outputs), artifacts.benchmark(view.artifact)]
        _not_in_the_future([artifacts.plan(view.artifact), reference, *files])
        if reference.exists():
            _make_as_new_as([*files, reference], sources)
        else:
            # The files bear no digest in their names and may show another plan. Snakemake looks only at the outputs
            # that were asked for, so a reference that is not there is not reason enough to write them again.
            _make_as_new_as(sources[:1], files, seconds=1.0)


def _write_plans(plan: Plan, tasks: Sequence[Task], artifacts: Artifacts) -> None:
    records: Iterable[tuple[Path, dict[str, Any]]] = (
        *((artifacts.plan(name), recipe.record()) for name, recipe in plan.recipes.items()),
        *((artifacts.plan(view.artifact), view.record) for view in plan.views),
        *((artifacts.task(task.name), task_record(task)) for task in tasks),
    )
    for path, record in records:
        # The same recipe may come from a study that names its inputs in another way.
        if not _holds(path, record):
            write_json(path, record, durable=False)


def _holds(path: Path, record: dict[str, Any]) -> bool:
    try:
        return bool(read_json(path) == record)
    except (OSError, ValueError):
        return False


def _drop_lost_parts(parts: Sequence[Path], store: Store) -> None:
    """Forget finished parts whose blocks are gone, so that jobs make them again."""
    for part in parts:
        if part.exists() and not parts_are_kept(part, store):
            part.unlink()


def _not_in_the_future(files: Iterable[Path]) -> None:
    """Set the time of each file that exists to now where it is later."""
    now = time.time_ns()
    for path in files:
        if path.exists() and path.stat().st_mtime_ns > now:
            os.utime(path, ns=(now, now))


def _make_as_new_as(files: Iterable[Path], sources: Iterable[Path], seconds: float = 0.0) -> None:
    """Make each file that exists newer, by `seconds`, than every one of the sources that exist."""
    newest = max((path.stat().st_mtime_ns for path in sources if path.exists()), default=0) + int(seconds * 1e9)
    for path in files:
        if path.exists() and path.stat().st_mtime_ns < newest:
            os.utime(path, ns=(newest, newest))
