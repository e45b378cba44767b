"""Tasks: the jobs of Snakemake, written down so that a job need not unfold the study again."""

from __future__ import annotations

import os
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from robustfeatures.derived.registry import METHODS
from robustfeatures.derived.settings import Derived
from robustfeatures.errors import UserError
from robustfeatures.files import ABSENT, holds_json, read_json, write_json
from robustfeatures.pipeline.plan.canonical import digest, to_json
from robustfeatures.pipeline.plan.estimates import estimate, find_networks, needs_gpu
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.study.parameters import Measurement

if TYPE_CHECKING:
    from robustfeatures.pipeline.plan.plan import Plan
    from robustfeatures.pipeline.plan.recipe import Recipe
    from robustfeatures.pipeline.study.config import Config

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One job of a study: the artifacts it makes, the tasks it waits for, its parts, and the resources it needs.

    `name` is `<stage>/<label>-<digest>` of its only artifact or of a batch; Snakemake tracks the file of that name.
    `memory_mb`, `minutes` and `gpu` are those of one part, the first two on the first try. The job that joins the parts
    needs no GPU. A training on several GPUs has a process for each. `copied_from` names, for networks that need not be
    trained, the artifact of another task that has the same network.
    """

    study: str
    name: str
    artifacts: tuple[str, ...]
    inputs: tuple[str, ...]
    parts: int
    memory_mb: int
    minutes: int
    gpu: int
    processes: int
    copied_from: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_batch(self) -> bool:
        """Whether the file that Snakemake tracks stands for several references."""
        return self.artifacts != (self.name,)

    @property
    def not_copied(self) -> tuple[str, ...]:
        """The artifacts whose payloads are not copied from another task."""
        return tuple(name for name in self.artifacts if name not in self.copied_from)

    @property
    def gpu_of_whole(self) -> int:
        """The GPUs of the job that makes the artifacts, or joins their parts."""
        return self.gpu if self.parts == 1 else 0


@dataclass(frozen=True)
class KnownRemote:
    """The address of a remote, and the keys of the payloads that it had when the study was planned."""

    address: str
    keys: tuple[str, ...]


def make_tasks(plan: Plan, config: Config, gpus: int) -> list[Task]:
    """The jobs of a plan, inputs first.

    A job makes up to `seeds_per_job` artifacts of one family, for up to `rows_per_job` rows that the same views need.
    `gpus` is the number of GPUs for each process that computes on one. With `gpus_per_job: auto` only jobs with much
    work do.
    """
    batches = dict(_batches(plan, config))
    task_of = {artifact: name for name, members in batches.items() for artifact in members}
    below = {
        name: tuple(dict.fromkeys(task_of[needed] for member in members for needed in plan.inputs(member)))
        for name, members in batches.items()
    }
    return [
        _task(name, [plan.recipes[member] for member in batches[name]], batches[name], below[name], config, gpus)
        for name in TopologicalSorter(below).static_order()
    ]


def plan_copies(plan: Plan, tasks: Sequence[Task], artifacts: Artifacts, kept: Container[str]) -> list[Task]:
    """The tasks, inputs first. Each knows the networks that it copies (`Plan.same_networks`) and waits for their tasks.

    A network that is there waits for no other one. Neither does one of `kept`, whose payload is in the store.
    """
    task_of = {artifact: task.name for task in tasks for artifact in task.artifacts}
    same = {
        name: source
        for name, source in plan.same_networks.items()
        if task_of[source] != task_of[name] and name not in kept and not artifacts.reference(name).exists()
    }
    # A task that copies is no source, so that no two tasks wait for each other.
    copying = {task_of[name] for name in same}
    found = {}
    for task in tasks:
        copied_from = {
            name: same[name] for name in task.artifacts if name in same and task_of[same[name]] not in copying
        }
        sources = (task_of[name] for name in copied_from.values() if not artifacts.reference(name).exists())
        inputs = tuple(dict.fromkeys((*task.inputs, *sources)))
        found[task.name] = replace(task, inputs=inputs, copied_from=copied_from)
    order = TopologicalSorter({name: task.inputs for name, task in found.items()}).static_order()
    return [found[name] for name in order]


def _batches(plan: Plan, config: Config) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Name and members of each job. The members have one depth, so that no two jobs wait for each other."""
    depths, needed_by = plan.depths(), _views_by_artifact(plan)
    families: dict[tuple[str, str, int], list[str]] = {}
    for name, recipe in plan.recipes.items():
        families.setdefault((recipe.stage.name, recipe.family, depths[name]), []).append(name)
    alike: dict[Hashable, list[tuple[str, tuple[str, ...]]]] = {}
    for (stage, family, depth), artifacts in families.items():
        for members in _chunks(artifacts, config.seeds_per_job):
            views = {needed_by[name] for name in members}
            # Rows of different views do not share a job, so that each view can be made without the others.
            together = (stage, depth, *views) if len(views) == 1 else members
            alike.setdefault(together, []).append((f"{stage}/{family}", members))
    for rows in alike.values():
        for batch in _chunks(rows, config.rows_per_job):
            members = tuple(name for _, row in batch for name in row)
            first = batch[0][0] + (f"-and-{len(batch) - 1}-more" if len(batch) > 1 else "")
            single = len(members) == 1
            yield members[0] if single else f"{first}-{len(members)}-seeds-{digest(members)}", members


def _chunks(items: Sequence[T], size: int) -> Iterator[tuple[T, ...]]:
    for first in range(0, len(items), size):
        yield tuple(items[first : first + size])


def _views_by_artifact(plan: Plan) -> dict[str, frozenset[str]]:
    """The views that need each artifact, directly or indirectly."""
    views: dict[str, set[str]] = {name: set() for name in plan.recipes}
    for view in plan.views:
        for name in view.inputs:
            if name in views:
                views[name].add(view.artifact)
    for name in reversed(list(plan.recipes)):
        for below in plan.inputs(name):
            views[below] |= views[name]
    return {name: frozenset(found) for name, found in views.items()}


def _task(
    name: str,
    recipes: list[Recipe],
    artifacts: tuple[str, ...],
    inputs: tuple[str, ...],
    config: Config,
    gpus: int,
) -> Task:
    stage = recipes[0].stage
    needed = [estimate(recipe) for recipe in recipes]
    parts = 1 if any(map(_selects_images, recipes)) else config.parts(stage.name)
    processes = max(each.processes for each in needed)
    used = gpus * processes if any(_uses_gpu(recipe, config) for recipe in recipes) else 0
    minutes = sum(each.minutes(gpu=used > 0, threads=config.threads_per_job, parts=parts) for each in needed)
    memory_mb = max(each.memory_mb for each in needed)
    return Task(
        study=config.study,
        name=name,
        artifacts=artifacts,
        inputs=inputs,
        parts=parts,
        memory_mb=memory_mb,
        minutes=minutes,
        gpu=used,
        processes=processes,
    )


def _selects_images(recipe: Recipe) -> bool:
    return isinstance(recipe.parameters, Derived) and METHODS[recipe.parameters.method.kind].selects


def _uses_gpu(recipe: Recipe, config: Config) -> bool:
    """Whether the artifact is made on a GPU, if its job can have one. A measurement without networks uses none."""
    if config.gpus_per_job == "auto":
        return needs_gpu(recipe)
    if isinstance(recipe.parameters, Measurement):
        return bool(find_networks(recipe))
    return recipe.stage.uses_torch


def write_tasks(artifacts: Artifacts, tasks: Sequence[Task], remote: KnownRemote | None = None) -> str:
    """Write down the jobs of a plan, and what they know of the remote; returns the name of this plan.

    They stay as they are, whatever is planned beside a run. The configuration says how many parts and which device a
    job has, and no name of a job shows that. So the file has the digest of its content in its name, and
    `announce_tasks` tells the jobs of a run which one is theirs.
    """
    record = {"tasks": {task.name: to_json(task) for task in tasks}, "remote": to_json(remote)}
    name = digest(record)
    path = artifacts.tasks(name)
    if holds_json(path, record):
        # It is the newest plan again.
        os.utime(path)
    else:
        write_json(path, record, durable=False)
    return name


def announce_tasks(artifacts: Artifacts, plan: str) -> None:
    """Tell the processes that this one starts, on any machine, to read the tasks that `write_tasks` wrote as `plan`."""
    os.environ[artifacts.tasks_variable] = plan


def _find_plans(artifacts: Artifacts) -> Sequence[Path]:
    """The file of the plan whose run this process belongs to, or by hand those of all plans, the newest first."""
    announced = artifacts.tasks(os.environ.get(artifacts.tasks_variable, ""))
    return [announced] if announced.exists() else artifacts.newest_tasks()


def read_remote(artifacts: Artifacts) -> KnownRemote | None:
    """The remote of the run that this process belongs to, or by hand that of the newest plan; None without one."""
    for path in _find_plans(artifacts)[:1]:
        with suppress(*ABSENT, ValueError, TypeError, KeyError):
            record = _read(path)["remote"]
            return KnownRemote(record["address"], tuple(record["keys"]))
    return None


def read_task(artifacts: Artifacts, name: str) -> Task:
    """The task of that name: in the plan of the run that this process belongs to, or by hand in the newest that has it.

    Raises:
        UserError: no study that was unfolded here plans it.
    """
    for path in _find_plans(artifacts):
        with suppress(*ABSENT, ValueError, TypeError, KeyError):
            record: Mapping[str, Any] = _read(path)["tasks"][name]
            return Task(**{**record, "artifacts": tuple(record["artifacts"]), "inputs": tuple(record["inputs"])})
    from robustfeatures.pipeline.plan.recipe import STAGES

    problem = "no study that was unfolded here plans this artifact"
    if artifacts.plan(name).exists() and name.partition("/")[0] not in STAGES:
        problem = "a table, figure, claims file or page; `robustfeatures view` makes it"
    elif study := find_study_of(artifacts, name):
        problem = f"the study {study} plans it; add `--config study={study}`"
    raise UserError(f"{artifacts.reference(name)}: {problem}")


def find_task_names(artifacts: Artifacts) -> dict[str, str]:
    """The name of the task that makes each artifact, by the newest plan that has it."""
    found: dict[str, str] = {}
    for path in reversed(artifacts.newest_tasks()):
        # Damaged, or of an earlier version.
        with suppress(*ABSENT, ValueError, TypeError, KeyError, AttributeError):
            tasks = _read(path)["tasks"]
            found |= {artifact: name for name, task in tasks.items() for artifact in task["artifacts"]}
    return found


def find_study_of(artifacts: Artifacts, artifact: str) -> str | None:
    """The study of the newest plan that makes an artifact; older plans may name a study that is gone."""
    for path in artifacts.newest_tasks():
        # Damaged, or of an earlier version.
        with suppress(*ABSENT, ValueError, TypeError, KeyError, AttributeError):
            for name, task in _read(path)["tasks"].items():
                if artifact in (name, *task["artifacts"]):
                    return str(task["study"])
    return None


@cache
def _read(path: Path) -> Mapping[str, Any]:
    """The content of a file with tasks, which never changes."""
    found: Mapping[str, Any] = read_json(path)
    return found
