"""Plan a run for Snakemake: write the plan down for the jobs, and update the references to the state of the store."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from robustfeatures.errors import UserError
from robustfeatures.files import holds_json, read_json, write_json
from robustfeatures.pipeline.plan.devices import Devices, Probe, choose_devices, probe_torch
from robustfeatures.pipeline.plan.plan import Plan, unfold
from robustfeatures.pipeline.plan.remote_payloads import fetch_planned
from robustfeatures.pipeline.plan.tasks import Task, make_tasks, plan_copies, write_tasks
from robustfeatures.pipeline.run.gpus import check_enough
from robustfeatures.pipeline.store.checkouts import register
from robustfeatures.pipeline.store.format import open_store
from robustfeatures.pipeline.store.references import (
    Artifacts,
    files_are_whole,
    find_key,
    is_built,
    parts_are_kept,
    read_content,
    read_reference,
    update_reference,
    write_batch,
)
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.config import Config


@dataclass(frozen=True)
class RunPlan:
    """What a run is to make, with which jobs and on which devices.

    name: of the file with the tasks (`write_tasks`).
    lines: what the user is told.
    most_gpus: of the jobs whose results are missing, those that the one with the most needs.
    """

    plan: Plan
    tasks: tuple[Task, ...]
    name: str
    devices: Devices
    lines: tuple[str, ...]
    most_gpus: int

    def check_gpus(self) -> None:
        """Check that the jobs whose results are missing get the GPUs that they need.

        Raises:
            UserError: one does not.
        """
        if self.devices.error and self.most_gpus:
            raise UserError(self.devices.error)
        if self.devices.gpus:
            check_enough(self.most_gpus, self.devices.gpus)


def plan_run(
    config: Config,
    studies: Path,
    artifacts: Artifacts,
    store: Store,
    *,
    is_local: bool,
    uses_conda: bool,
    probe: Probe = probe_torch,
) -> RunPlan:
    """Plan a run of the configured study, whose file lies in the folder `studies`, and prepare it for the jobs.

    `is_local`, `uses_conda` and `probe` are those of `choose_devices`.

    Raises:
        UserError: something in the study is wrong, or the store or the remote cannot be used.
    """
    plan = unfold(config, studies)
    tasks, devices = make_tasks(plan, config, gpus=1), Devices(0)
    # Torch is asked only if a job is large enough for a GPU, because the answer takes seconds.
    if any(task.gpu for task in tasks):
        devices = choose_devices(config, is_local=is_local, uses_conda=uses_conda, probe=probe)
        tasks = make_tasks(plan, config, devices.gpus_per_job)
    tasks, name, lines = prepare(plan, tasks, artifacts, store, config.remote)
    missing = [task for task in tasks if not artifacts.reference(task.name).exists()]
    if devices.warning and missing:
        lines.append(devices.warning)
    most = max((task.gpu for task in missing), default=0)
    return RunPlan(plan, tuple(tasks), name, devices, tuple(lines), most)


def prepare(
    plan: Plan, tasks: Sequence[Task], artifacts: Artifacts, store: Store, remote: str | None = None
) -> tuple[list[Task], str, list[str]]:
    """Write down the plan for the jobs, and update the references to the state of the store.

    The reference of a recipe is removed if its payload is gone or has other content. The reference of a view is removed
    if its results have other content now. A reference is written here if the store already has the payload, so that no
    job runs for it. Before that, payloads that only the remote has are fetched. The store records what this checkout
    needs.

    Returns the tasks, with the networks that they copy from one another; the name of their file; and lines on the
    payloads that the remote has damaged.

    Raises:
        UserError: the store is missing although references point into it, another version wrote it, this user may not
            write there and payloads are missing, or the remote cannot be reached.
    """
    there = sum(artifacts.reference(name).exists() for task in tasks for name in task.artifacts)
    open_store(store.root, expected=there)
    known, damaged = fetch_planned(remote, plan, artifacts, store)
    records = {name: recipe.record() for name, recipe in plan.recipes.items()}
    _write_plans(records, artifacts)
    kept = {name for name in plan.same_networks if _is_kept(artifacts.reference(name), store)}
    for task in tasks:
        for name in task.artifacts:
            update_reference(artifacts, name, records[name], store)
        tracked = artifacts.reference(task.name)
        whole = all(artifacts.reference(name).exists() for name in task.artifacts)
        if task.is_batch and whole and not tracked.exists():
            write_batch(tracked, task.artifacts)
        elif task.is_batch and not whole:
            tracked.unlink(missing_ok=True)
        if not whole:
            keys = [find_key(artifacts, records[name]) for name in task.artifacts]
            _forget_lost_parts(artifacts.parts(task.name, task.parts), store, keys)
    tasks = plan_copies(plan, tasks, artifacts, kept)
    written = write_tasks(artifacts, tasks, known)
    _forget_old_views(plan, artifacts)
    _write_view_plans(plan, artifacts)
    if any(not artifacts.reference(task.name).exists() for task in tasks):
        store.check_writable()
    built = (path for name in plan.recipes if (path := artifacts.reference(name)).exists())
    needed = (read_reference(path)["key"] for path in built)
    register(store.root, artifacts.root, plan.study, needed, is_whole=is_built_whole(plan, artifacts))
    for outputs, inputs in _jobs(plan, tasks, artifacts):
        _align_times(outputs, inputs)
    return tasks, written, damaged


def is_built_whole(plan: Plan, artifacts: Artifacts) -> bool:
    """Whether every artifact of the plan has a reference."""
    return all(artifacts.reference(name).exists() for name in plan.recipes)


def _is_kept(reference: Path, store: Store) -> bool:
    """Whether the store has the payload of a reference, even if an input of it is gone. A damaged one has none."""
    with suppress(UserError):
        return is_built(reference, store)
    return False


def _jobs(plan: Plan, tasks: Sequence[Task], artifacts: Artifacts) -> Iterator[tuple[list[Path], list[Path]]]:
    """The files that each job writes, and those that it reads, jobs in the order of the plan.

    The files of views without a reference are left out, because they may show another plan. Snakemake also compares
    the time of a job's benchmark file, so it is among the outputs.
    """
    for task in tasks:
        inputs = [artifacts.reference(below) for below in task.inputs]
        parts = artifacts.parts(task.name, task.parts)
        for part in parts:
            yield [part, artifacts.benchmark(f"{task.name}-{part.stem}")], inputs
        yield [artifacts.reference(task.name), artifacts.benchmark(task.name)], [*inputs, *parts]
    home = {name: task.name for task in tasks for name in task.artifacts}
    for views in plan.view_jobs.values():
        plans = [artifacts.plan(view.artifact) for view in views]
        yield plans, []
        references = [artifacts.reference(view.artifact) for view in views]
        if all(reference.exists() for reference in references):
            inputs = [artifacts.reference(home.get(name, name)) for view in views for name in view.inputs]
            files = [artifacts.root.parent / name for view in views for name in view.outputs]
            yield [*references, *files, artifacts.benchmark(views[0].artifact)], [*plans, *inputs]


def _align_times(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Make the existing outputs as new as the inputs, and no newer than now.

    A reference that exists is always valid. But Snakemake compares times whatever the `rerun-triggers`: it runs a job
    again if an input is newer and its content has changed, such as the cost in a reference. And a job fails if an input
    is from the future, which happens when a clock is set back. `ancient()` is no way out: Snakemake then skips a job
    whose outputs are missing, if one of its inputs is made again for another reason.
    """
    now = time.time_ns()
    newest = max((path.stat().st_mtime_ns for path in inputs if path.exists()), default=0)
    for path in outputs:
        if path.exists():
            before = path.stat().st_mtime_ns
            moment = min(max(before, newest), now)
            if moment != before:
                os.utime(path, ns=(moment, moment))


def _write_plans(records: Mapping[str, dict[str, Any]], artifacts: Artifacts) -> None:
    for name, record in records.items():
        # The same recipe may come from a study that gives its inputs other labels. A job finds them by their digests.
        if not holds_json(artifacts.plan(name), record):
            write_json(artifacts.plan(name), record, durable=False)


def _forget_old_views(plan: Plan, artifacts: Artifacts) -> None:
    """Remove the references of views that show other contents of their results than those that are there now.

    A result that was lost and made again may have other bits, without a job of this run that Snakemake could see. A
    view whose files were removed or changed has no reference either, because the page reads these files.
    """
    results = artifacts.root.parent
    # Many views show the same results.
    present = cache(lambda name: read_content(artifacts.reference(name)))

    def is_present(reference: Path) -> bool:
        try:
            contents = read_json(reference)["contents"]
        except (ValueError, KeyError, TypeError):
            # Damaged, or of an earlier version.
            return False
        # What is missing is made again, and the view after it.
        return files_are_whole(reference, results) and all(
            present(name) in (None, content) for name, content in contents.items()
        )

    # A view whose file is not there yet may be one that a run beside this plan is drawing. It has already written the
    # references of the other views of its job.
    for view in plan.views:
        reference = artifacts.reference(view.artifact)
        if reference.exists() and not is_present(reference):
            reference.unlink(missing_ok=True)


def _write_view_plans(plan: Plan, artifacts: Artifacts) -> None:
    for view in plan.views:
        path, is_lost = artifacts.plan(view.artifact), not artifacts.reference(view.artifact).exists()
        if is_lost or not holds_json(path, view.record):
            write_json(path, view.record, durable=False)
        # The files of a view have no digest in their names, so without a reference they may show another plan. They
        # become older than the plan, so that Snakemake makes them again even if it has lost its own records.
        if is_lost:
            moment = path.stat().st_mtime_ns - 1_000_000_000
            for file in (artifacts.root.parent / name for name in view.outputs):
                if file.exists() and file.stat().st_mtime_ns > moment:
                    os.utime(file, ns=(moment, moment))


def _forget_lost_parts(parts: Sequence[Path], store: Store, keys: Sequence[str | None]) -> None:
    """Remove the files of finished parts whose blocks are gone, so that jobs make them again."""
    for part in parts:
        if part.exists() and not parts_are_kept(part, store, keys):
            part.unlink()
