"""The state of a study: counts and computing per stage, running jobs, the time left, and what a run spent computing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from robustfeatures.errors import count_things, make_printable
from robustfeatures.experiments.shared.units import percent
from robustfeatures.files import read_json
from robustfeatures.pipeline.plan.estimates import estimate, find_processes
from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.plan.recipe import STAGES, Recipe
from robustfeatures.pipeline.plan.tasks import find_task_names
from robustfeatures.pipeline.store.references import (
    Artifacts,
    files_are_whole,
    find_key,
    is_built,
    read_reference,
    sum_computing,
)
from robustfeatures.pipeline.store.store import Store

if TYPE_CHECKING:
    from rich.console import Group

# The stage that computes nothing.
READING = "data"
# A stage, and whether the work is known in operations of a network. The time of other work says nothing of a speed.
Kind = tuple[str, bool]
# What an expected time is taken from: finished artifacts of the same kinds, of others, or what is asked of a cluster.
Basis = Literal["same", "others", "request"]


@dataclass(frozen=True)
class Running:
    """A job at work, in any study of the store: its share done, from 0 to 1, and the seconds left if known.

    `key` is that of the payload, of which the job makes one of `parts`.
    """

    key: str
    parts: int
    stage: str
    label: str
    share: float
    seconds_left: float | None


@dataclass(frozen=True)
class Pace:
    """What the finished artifacts of a study took, in all tries, over what is asked of a cluster for them.

    `computing` is that of all whose work is known in operations; None before the first of them.
    """

    by_kind: Mapping[Kind, float]
    computing: float | None

    def ratio(self, kind: Kind) -> float:
        """That of a kind, else of all computing, else 1. How fast networks are says nothing of reading data."""
        others = 1.0 if self.computing is None or kind[0] == READING else self.computing
        return self.by_kind.get(kind, others)

    def find_basis(self, kinds: Collection[Kind]) -> Basis:
        """What the time of artifacts of these kinds is taken from."""
        lacking = [stage for stage, computes in kinds if (stage, computes) not in self.by_kind]
        if not lacking:
            return "same"
        return "others" if self.computing is not None and set(lacking) != {READING} else "request"


@dataclass(frozen=True)
class State:
    """How far a study is.

    study: its name.
    counts: artifacts that are there and all artifacts, by stage or kind of view, inputs first.
    missing: the artifacts that are not there.
    running: the jobs of all studies of the store.
    at_once: how many of them make what is missing here.
    seconds_left: what the missing artifacts take one after another; None before the first artifact is there.
    basis: what these seconds are taken from.
    store: the folder of payloads.
    lost: how many of the missing artifacts were made, but their payloads are not in the store.
    computing: the seconds inside training, attack and evaluation that made what is there, by stage.
    """

    study: str
    counts: Mapping[str, tuple[int, int]]
    missing: Sequence[str]
    running: Sequence[Running]
    at_once: int
    seconds_left: float | None
    basis: Basis
    store: Path
    lost: int
    computing: Mapping[str, float]

    def describe_time(self) -> str:
        """The time left at the present number of jobs."""
        if not any(name.partition("/")[0] in STAGES for name in self.missing):
            return "only tables, figures, claims or pages are missing"
        if self.seconds_left is None:
            return "time left: unknown until a job has finished"
        at_once = max(1, self.at_once)
        jobs = "one job" if at_once == 1 else f"{at_once} jobs"
        left = f"{format_duration(self.seconds_left / at_once)} with {jobs} at once"
        how = {"same": "about", "others": "roughly", "request": "at most about"}[self.basis]
        less = ", likely far less" if self.basis == "request" else ""
        later = "" if self.basis == "same" else "; better known once a job of each stage has finished"
        return f"time left: {how} {left}{less}{later}"

    def describe_computing(self) -> str:
        """The time that what is there took, all jobs together, and that of each stage."""
        parts = [f"{stage} {format_duration(self.computing[stage])}" for stage in STAGES if stage in self.computing]
        return f"computing until now: {format_duration(sum(self.computing.values()))} ({', '.join(parts)})"


def find_state(plan: Plan, artifacts: Artifacts, store: Store) -> State:
    """Look at the store, at the references of a plan, and at the jobs at work."""
    there = _find_stored(plan, artifacts, store)
    results = artifacts.root.parent
    there |= {view.artifact for view in plan.views if files_are_whole(artifacts.reference(view.artifact), results)}
    names = [*plan.recipes, *(view.artifact for view in plan.views)]
    all_of, found = (Counter(name.partition("/")[0] for name in some) for some in (names, there))
    running = list(_find_running(store))
    missing = [name for name in names if name not in there]
    # Two names of a study may stand for one payload.
    lacking = {recipe.digest: recipe for name in missing if (recipe := plan.recipes.get(name)) is not None}
    own = _match(lacking.values(), running, artifacts)
    computed = [recipe for recipe in lacking.values() if recipe.name not in plan.same_networks]
    asked = {name: _ask(recipe) for name, recipe in plan.recipes.items()}
    pace = _find_pace(asked, artifacts)
    left = _expect(computed, own, pace, asked, artifacts)
    basis = pace.find_basis({asked[recipe.name][0] for recipe in computed})
    stages = sorted(all_of, key=[*STAGES, *all_of].index)
    counts = {stage: (found[stage], all_of[stage]) for stage in stages}
    lost = sum(name in plan.recipes and artifacts.reference(name).exists() for name in missing)
    built = (path for name in plan.recipes if name in there and (path := artifacts.reference(name)).exists())
    computing = sum_computing(map(read_reference, built))
    at_once = sum(map(len, own.values()))
    return State(plan.study, counts, missing, running, at_once, left, basis, store.root, lost, computing)


def _find_stored(plan: Plan, artifacts: Artifacts, store: Store) -> set[str]:
    """The artifacts whose payloads the store has. After `pull` or `accept` no reference of this checkout tells so."""
    contents: dict[str, str] = {}
    for name, recipe in plan.recipes.items():
        path = artifacts.reference(name)
        if is_built(path, store):
            contents[name] = read_reference(path)["content"]
            continue
        key = recipe.find_key(contents)
        manifest = None if key is None else store.manifest(key)
        if manifest is not None:
            contents[name] = manifest["content"]
    return {*contents}


def _find_running(store: Store) -> Iterator[Running]:
    for path in sorted(store.root.glob(".partial/*/progress*.json")):
        try:
            report = read_json(path)
        except (OSError, ValueError):
            continue
        key, (_, _, parts) = path.parent.name, path.stem.rpartition("-of-")
        if store.is_held(key):
            told = (report[name] for name in ("stage", "label", "share", "seconds_left"))
            yield Running(key, int(parts) if parts.isdecimal() else 1, *told)


def _match(missing: Iterable[Recipe], running: Sequence[Running], artifacts: Artifacts) -> dict[str, list[Running]]:
    """The jobs that make these recipes, by digest. A job of another study may have the same label."""
    jobs: defaultdict[str, list[Running]] = defaultdict(list)
    for job in running:
        jobs[job.key].append(job)
    stages = {job.stage for job in running}
    keys = {recipe.digest: find_key(artifacts, recipe.record()) for recipe in missing if recipe.stage.name in stages}
    return {digest: jobs[key] for digest, key in keys.items() if key is not None and key in jobs}


def _find_pace(asked_of: Mapping[str, tuple[Kind, float]], artifacts: Artifacts) -> Pace:
    took: defaultdict[Kind, float] = defaultdict(float)
    asked: defaultdict[Kind, float] = defaultdict(float)
    for name, (kind, seconds) in asked_of.items():
        path = artifacts.reference(name)
        if path.exists():
            built = read_reference(path)["built"]
            # The seconds are those of the last try. Those of computing are of all tries, and of all parts.
            took[kind] += max(built["seconds"], built["computing_seconds"])
            asked[kind] += seconds
    computing = [kind for kind in took if kind[1]]
    pace = sum(took[kind] for kind in computing) / sum(asked[kind] for kind in computing) if computing else None
    return Pace({kind: took[kind] / asked[kind] for kind in took}, pace)


def _ask(recipe: Recipe) -> tuple[Kind, float]:
    """The kind of an artifact, and the seconds that are asked of a cluster for it on one core."""
    found = estimate(recipe)
    return (recipe.stage.name, found.operations > 0), found.seconds(gpu=False, threads=1, parts=1)


def _expect(
    missing: Sequence[Recipe],
    own: Mapping[str, Sequence[Running]],
    pace: Pace,
    asked_of: Mapping[str, tuple[Kind, float]],
    artifacts: Artifacts,
) -> float | None:
    """The seconds that artifacts take one after another; a job at work knows its own. `own` are the jobs by digest."""
    if missing and not pace.by_kind:
        return None
    seconds = 0.0
    # A task that makes several seeds has its parts under its own name.
    tasks = find_task_names(artifacts) if own else {}
    for recipe in missing:
        kind, asked = asked_of[recipe.name]
        whole = asked * pace.ratio(kind)
        jobs = own.get(recipe.digest, ())
        parts = max((job.parts for job in jobs), default=1)
        finished = sum(path.exists() for path in artifacts.parts(tasks.get(recipe.name, recipe.name), parts))
        seconds += max(0, parts - finished - len(jobs)) * whole / parts
        seconds += sum(_left(job, whole) for job in jobs)
    return seconds


def _left(job: Running, whole: float) -> float:
    """The seconds that a job still takes, where all parts together take `whole`."""
    return whole / job.parts * (1 - job.share) if job.seconds_left is None else job.seconds_left


def format_duration(seconds: float) -> str:
    """Seconds as people say them: "40 s", "12 min", "3.5 h", "2.1 days"."""
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.{1 if name == 'h' else 0}f} {name}"
    return f"{seconds / 86400:.1f} days"


def draw(state: State, *, every: bool) -> Group:
    """The state as rich shows it; with `every` it lists the missing artifacts."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    there, total = (sum(counts[place] for counts in state.counts.values()) for place in (0, 1))
    whole = f"study {state.study}: {there} of {count_things(total, 'artifact')} are there"
    shown: list[Text | Table] = [Text(make_printable(whole))]
    if state.missing:
        stages = Table.grid(padding=(0, 2))
        for stage, (found, of) in state.counts.items():
            stages.add_row(Text(f"  {stage}"), Text(f"{found} of {of}", justify="right"))
        shown += [stages, Text(state.describe_time())]
    if state.computing:
        shown.append(Text(state.describe_computing()))
    if state.lost:
        lost = count_things(state.lost, "artifact")
        line = f"the store {state.store} lacks {lost} that had been made; --store names another store"
        shown.append(Text(make_printable(line)))
    if state.running:
        jobs = Table.grid(padding=(0, 2))
        for job in state.running:
            left = "" if job.seconds_left is None else f"{format_duration(job.seconds_left)} left"
            name = Text(make_printable(f"  {job.stage} {job.label}"), overflow="fold")
            done = f"{percent(job.share):.0f} %"
            jobs.add_row(name, ProgressBar(completed=percent(job.share), width=20), Text(done, justify="right"), left)
        shown += [Text("at work"), jobs]
    if every:
        shown += [Text(f"  lacks {name}", no_wrap=True, overflow="ignore") for name in state.missing]
    return Group(*shown)


def computing_share(
    plan: Plan, artifacts: Artifacts, since: str, seconds: float, cores: int, gpu_places: int = 0
) -> str:
    """One line with the payloads that a run computed, copied and took from the remote, and its share of computing.

    Computing is training, attack, evaluation and measurement; the share is of the run's core seconds. If the run has
    computed on GPUs, with places for `gpu_places` jobs, it is of the time of these places. A training on several GPUs
    takes a place on each.
    """
    # Two names of a study may stand for one payload.
    built = {}
    for name, recipe in plan.recipes.items():
        path = artifacts.reference(name)
        if path.exists():
            found = read_reference(path)
            built[found["key"]] = {**found["built"], "processes": find_processes(recipe)}
    arrivals = artifacts.arrivals(since)
    came = Counter(arrivals.get(key, "found") for key in built)
    fresh = [cost for key, cost in built.items() if arrivals.get(key) == "computed"]
    on_gpus = [cost for cost in fresh if cost["device"].startswith("cuda")]
    if gpu_places and on_gpus:
        computing = sum(_computing(cost) * cost["processes"] for cost in on_gpus) / gpu_places
        where, whose = f"with {count_things(gpu_places, 'place')} for jobs on GPUs", "their time"
    else:
        computing = sum(_computing(cost) * min(cost["threads"], cores) for cost in fresh) / cores
        where, whose = f"on {count_things(cores, 'core')}", "the core time"
    others = {"taken": "taken from the remote", "copied": "copied from a training with probes"}
    counted = "".join(f"{came[how]} {words}, " for how, words in others.items() if came[how])
    return (
        f"{count_things(came['computed'], 'payload')} computed, {counted}{came['found']} found, "
        f"in {seconds:.0f} s {where}; "
        f"{percent(computing / seconds):.0f} % of {whose} inside training, attack or evaluation"
    )


def _computing(cost: Mapping[str, float]) -> float:
    """The computing seconds of a payload in this run. One that an earlier run began has its too."""
    return min(cost["computing_seconds"], cost["seconds"])
