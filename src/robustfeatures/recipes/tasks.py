"""Tasks: what Snakemake runs as one job, written down so that a job need not unfold the study again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

from robustfeatures.errors import UserError
from robustfeatures.recipes.canonical import digest
from robustfeatures.recipes.estimates import estimate
from robustfeatures.store.files import read_json
from robustfeatures.store.references import Artifacts

if TYPE_CHECKING:
    from robustfeatures.recipes.config import Config
    from robustfeatures.recipes.plan import Plan
    from robustfeatures.recipes.recipe import Recipe

SEED = re.compile(r"-seed\d+")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One job: the artifacts it makes, the tasks it waits for, its parts, and what it asks of the machine.

    `name` is `<stage>/<label>-<digest>`: that of its only artifact, or of a batch of seeds, and the file that Snakemake
    tracks lies under it. `memory_mb` and `minutes` are those of one part on the first try.
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
        """Whether the file Snakemake tracks stands for several references."""
        return self.artifacts != (self.name,)


def tasks_of(plan: Plan, config: Config, gpus: int) -> list[Task]:
    """The jobs of a plan, inputs first: up to `seeds_per_job` artifacts whose labels differ in the seed alone.

    `gpus` is how many GPUs each job asks for whose stage computes on one.
    """
    batches = dict(_batches(plan, config.seeds_per_job))
    home = {artifact: name for name, members in batches.items() for artifact in members}
    below = {
        name: tuple(dict.fromkeys(home[needed] for member in members for needed in plan.inputs(member)))
        for name, members in batches.items()
    }
    return [
        _task(name, [plan.recipes[member] for member in batches[name]], batches[name], below[name], config, gpus)
        for name in TopologicalSorter(below).static_order()
    ]


def _batches(plan: Plan, seeds_per_job: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    families: dict[tuple[str, str], list[str]] = {}
    for name, recipe in plan.recipes.items():
        families.setdefault((recipe.stage.name, SEED.sub("", recipe.label)), []).append(name)
    for (stage, family), artifacts in families.items():
        for first in range(0, len(artifacts), seeds_per_job):
            members = tuple(artifacts[first : first + seeds_per_job])
            single = len(members) == 1
            yield members[0] if single else f"{stage}/{family}-{len(members)}-seeds-{digest(members)}", members


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
    # What builds on nothing is a toy model, which a processor is as fast at.
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
    """The task of that name, as the plan was written down.

    Raises:
        UserError: no study that was unfolded here plans it.
    """
    try:
        record: Mapping[str, Any] = read_json(artifacts.task(name))
        return Task(**{**record, "artifacts": tuple(record["artifacts"]), "inputs": tuple(record["inputs"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{artifacts.reference(name)}: no study that was unfolded here plans this artifact") from error
