"""Tasks: the jobs of Snakemake, written down so that a job need not unfold the study again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any, TypeVar

from robustfeatures.errors import UserError
from robustfeatures.files import read_json
from robustfeatures.pipeline.plan.canonical import digest
from robustfeatures.pipeline.plan.estimates import estimate
from robustfeatures.pipeline.store.references import Artifacts

if TYPE_CHECKING:
    from robustfeatures.pipeline.plan.plan import Plan
    from robustfeatures.pipeline.plan.recipe import Recipe
    from robustfeatures.pipeline.study.config import Config

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One job: the artifacts it makes, the tasks it waits for, its parts, and the resources it needs.

    `name` is `<stage>/<label>-<digest>` of its only artifact or of a batch; Snakemake tracks the file of that name.
    `memory_mb` and `minutes` are those of one part on the first try.
    """

    name: str
    artifacts: tuple[str, ...]
    inputs: tuple[str, ...]
    parts: int
    memory_mb: int
    minutes: int
    gpu: int

    @property
    def is_batch(self) -> bool:
        """Whether the file that Snakemake tracks stands for several references."""
        return self.artifacts != (self.name,)


def make_tasks(plan: Plan, config: Config, gpus: int) -> list[Task]:
    """The jobs of a plan, inputs first.

    A job makes up to `seeds_per_job` artifacts of one family, for up to `rows_per_job` rows that the same views need.
    `gpus` is the number of GPUs for each job that computes on one.
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


def _batches(plan: Plan, config: Config) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Name and members of each job. The members have one depth, so that no two jobs wait for each other."""
    depths, needed_by = _depths(plan), _views_by_artifact(plan)
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


def _depths(plan: Plan) -> dict[str, int]:
    """The number of artifacts on the longest path from each artifact down to the data, itself included."""
    depths: dict[str, int] = {}
    for name in plan.recipes:
        depths[name] = 1 + max((depths[below] for below in plan.inputs(name)), default=0)
    return depths


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
    parts = config.parts(stage.name)
    # A recipe without inputs is a toy model, which a processor computes as fast.
    used = gpus if stage.uses_torch and recipes[0].inputs else 0
    minutes = sum(each.minutes(gpu=used > 0, threads=config.threads_per_job, parts=parts) for each in needed)
    memory_mb = max(each.memory_mb for each in needed)
    return Task(
        name=name,
        artifacts=artifacts,
        inputs=inputs,
        parts=parts,
        memory_mb=memory_mb,
        minutes=minutes,
        gpu=used,
    )


def task_record(task: Task) -> dict[str, Any]:
    """A task as JSON values."""
    return {**asdict(task), "artifacts": list(task.artifacts), "inputs": list(task.inputs)}


def read_task(artifacts: Artifacts, name: str) -> Task:
    """The task of that name, from the plan that `prepare` wrote.

    Raises:
        UserError: no study that was unfolded here plans it.
    """
    try:
        record: Mapping[str, Any] = read_json(artifacts.task(name))
        return Task(**{**record, "artifacts": tuple(record["artifacts"]), "inputs": tuple(record["inputs"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{artifacts.reference(name)}: no study that was unfolded here plans this artifact") from error
