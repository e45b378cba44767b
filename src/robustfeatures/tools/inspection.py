"""What the command line tells about artifacts: one of them, its chain, the state of a study, the health of a store."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from robustfeatures.errors import UserError
from robustfeatures.experiments.shared.units import percent
from robustfeatures.files import read_json
from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.report.building import attack_names
from robustfeatures.pipeline.store.references import Artifacts, read_reference
from robustfeatures.pipeline.store.store import LEASE_SECONDS, Store


def show(path: Path, store: Store) -> Iterator[str]:
    """One artifact in human terms: what it is, its settings, numbers, cost, and where it lies."""
    if (files := _files_of_view(path)) is not None:
        yield f"{path.stem}: stage {path.parent.name}"
        yield from (f"  {name}" for name in files)
        yield "made from"
        yield from (f"  {artifact}" for artifact in _needs_of_view(path))
        return
    reference = read_reference(path)
    built, recipe = reference["built"], reference["recipe"]
    yield f"{reference['label']}: stage {reference['stage']}, content {reference['content']}"
    yield "settings"
    yield from (f"  {name}: {value}" for name, value in flat(recipe["parameters"]))
    yield "made from"
    yield from (f"  {role}: {artifact}" for role, artifact in recipe["inputs"].items())
    folder = store.payload(reference["key"])
    numbers = list(_numbers(folder, recipe))
    if numbers:
        yield "numbers"
        yield from (f"  {line}" for line in numbers)
    yield (
        f"cost: {built['seconds']:.1f} s on {built['device']} of {built['host']} ({built['machine']}), "
        f"{built['computing_seconds']:.1f} s of them computing"
        + (f", {built['probe_seconds']:.1f} s of these in probes" if "probe_seconds" in built else "")
        + f", on {built['started']}"
    )
    versions = ", ".join(f"{name} {version}" for name, version in built["packages"].items())
    yield f"made with: Python {built['python']}, {versions}; commit {built['git_commit'] or 'unknown'}"
    there = "" if store.manifest(reference["key"]) else " (missing or damaged)"
    yield f"lies in: {folder}{there}, {reference['bytes'] / 1e6:.2f} MB"


def _files_of_view(path: Path) -> list[str] | None:
    """The files of a table, figure, claims file or page, below the results folder; None for other references."""
    try:
        view = read_json(path)
        view["recipe"]["parts"]
        return list(view["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _needs_of_view(path: Path) -> list[str]:
    parts = read_json(path)["recipe"]["parts"]
    return list(dict.fromkeys(need["artifact"] for part in parts for need in part["needs"]))


def flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as (dotted name, value) pairs."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from flat(item, f"{prefix}.{name}" if prefix else name)
    elif isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        for number, item in enumerate(value):
            yield from flat(item, f"{prefix}.{number}")
    else:
        yield prefix, value


def _numbers(folder: Path, recipe: Mapping[str, Any]) -> Iterator[str]:
    if (folder / "rows.csv").exists():
        for row in csv.DictReader((folder / "rows.csv").read_text().splitlines()):
            if "correct" not in row:
                yield ", ".join(f"{name} {value}" for name, value in row.items())
                continue
            share = percent(int(row["correct"]) / int(row["total"]))
            under = _under(int(row["attacks"]), attack_names(recipe))
            yield f"eps {row['eps']}, labels shifted by {row['label_shift']}{under}: {share:.2f} % of {row['total']}"
    if (folder / "history.csv").exists():
        history = list(csv.DictReader((folder / "history.csv").read_text().splitlines()))
        for row in history:
            if row["epoch"] == history[-1]["epoch"]:
                on = "" if row["network"] == "itself" else f" on {row['network']}"
                yield f"epoch {row['epoch']}, {row['probe']}{on}: {float(row['value']):.4f}"


def _under(attacks: int, names: Sequence[str]) -> str:
    """Which attacks have run, the first so many of `names`."""
    if attacks == 0:
        return ""
    return f", {names[attacks - 1]}" + (" and what ran before it" if attacks > 1 else "")


def why(path: Path) -> Iterator[str]:
    """The recipes behind an artifact, and what differs from the newest earlier build of the same label.

    Of a table, figure, claims file or page only the last build is kept, so that nothing is compared.
    """
    artifacts, artifact = Artifacts.of(path)
    if _files_of_view(path) is not None:
        seen: set[str] = set()
        for need in _needs_of_view(path):
            yield from _chain(artifacts, need, 0, seen)
        return
    reference = read_reference(path)
    yield from _chain(artifacts, artifact, 0, set())
    earlier = _newest_other(path, reference)
    if earlier is None:
        yield "no earlier build of this label"
        return
    yield f"differs from {earlier.name} in"
    yield from (f"  {line}" for line in _differences(artifacts, reference["recipe"], read_reference(earlier)["recipe"]))


def _chain(artifacts: Artifacts, artifact: str, depth: int, seen: set[str]) -> Iterator[str]:
    path = artifacts.reference(artifact)
    recipe = read_json(path if path.exists() else artifacts.plan(artifact))
    recipe = recipe.get("recipe", recipe)
    again = artifact in seen
    yield f"{'  ' * depth}{artifact}{' (as above)' if again else ''}"
    seen.add(artifact)
    if not again:
        for below in recipe["inputs"].values():
            yield from _chain(artifacts, below, depth + 1, seen)


def _newest_other(path: Path, reference: Mapping[str, Any]) -> Path | None:
    same_label = [
        other for other in Artifacts.of(path)[0].builds(reference["stage"], reference["label"]) if other != path
    ]
    started = {other: read_reference(other)["built"]["started"] for other in same_label}
    earlier = [other for other in same_label if started[other] <= reference["built"]["started"]]
    return max(earlier, key=started.__getitem__, default=None)


def _differences(
    artifacts: Artifacts, now: Mapping[str, Any], before: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    for name in ("version", "code", "torch"):
        if now[name] != before[name]:
            what = "the code of the stage" if name == "code" else name
            yield f"{prefix}{what}: {before[name]} -> {now[name]}"
    new, old = dict(flat(now["parameters"])), dict(flat(before["parameters"]))
    for name in sorted(new.keys() | old.keys()):
        if new.get(name) != old.get(name):
            yield f"{prefix}{name}: {old.get(name)} -> {new.get(name)}"
    for role in sorted(now["inputs"].keys() | before["inputs"].keys()):
        there, then = now["inputs"].get(role), before["inputs"].get(role)
        if there is None or then is None:
            yield f"{prefix}input {role}: {then} -> {there}"
        elif there != then:
            recipes = [read_json(artifacts.plan(artifact)) for artifact in (there, then)]
            yield from _differences(artifacts, recipes[0], recipes[1], f"{prefix}{role}: ")


def status(plan: Plan, artifacts: Artifacts, store: Store) -> Iterator[str]:
    """What a study still lacks, what is running, how far it is, and the time left."""
    results = artifacts.root.parent
    missing = [name for name in plan.recipes if not _is_there(artifacts.reference(name), store)]
    missing += [
        view.artifact
        for view in plan.views
        if not all(path.exists() for path in (artifacts.reference(view.artifact), *map(results.joinpath, view.outputs)))
    ]
    total = len(plan.recipes) + len(plan.views)
    yield f"{total - len(missing)} of {total} artifacts are there"
    yield from (f"  lacks {name}" for name in missing)
    for path in sorted(store.root.glob(".partial/*/progress*.json")):
        try:
            report = read_json(path)
        except (OSError, ValueError):
            continue
        if _is_held(path.parent):
            left = report["seconds_left"]
            yield f"running: {report['stage']} {report['label']}, {percent(report['share']):.0f} %, " + (
                "time left unknown" if left is None else f"{left:.0f} s left"
            )


def _is_held(scratch: Path) -> bool:
    """Whether a job is at work there: it touches its lock, however long it is between two reports.

    A lock from the future was left by a job that died before the clock was set back.
    """
    now = time.time()
    for lock in scratch.parent.glob(f"{scratch.name}*.lock"):
        # A job may let go of it at this moment.
        with suppress(FileNotFoundError):
            if abs(now - lock.stat().st_mtime) < LEASE_SECONDS:
                return True
    return False


def _is_there(reference: Path, store: Store) -> bool:
    return reference.exists() and store.manifest(read_reference(reference)["key"]) is not None


def computing_share(plan: Plan, artifacts: Artifacts, since: str, seconds: float, cores: int) -> str:
    """One line: how much of the core seconds of a run went into training, attack or evaluation."""
    built = [
        read_reference(artifacts.reference(name))["built"]
        for name in plan.recipes
        if artifacts.reference(name).exists()
    ]
    fresh = [cost for cost in built if cost["started"] >= since]
    computing = sum(cost["computing_seconds"] * min(cost["threads"], cores) for cost in fresh)
    share = percent(computing / (seconds * cores))
    return (
        f"{len(fresh)} payloads computed in {seconds:.0f} s on {cores} cores; "
        f"{share:.0f} % of the core time inside training, attack or evaluation"
    )


def verify(store: Store, *, repair: bool = False) -> Iterator[str]:
    """Rehash every file of the store; one line per damaged, missing or unexpected file.

    With `repair` one more line per damaged payload, which says where it was moved, so that it will be made anew.

    Raises:
        UserError: there is no such store.
    """
    if not store.root.is_dir():
        raise UserError(f"{store.root}: there is no store here")
    for key in store.payload_keys():
        damages = list(store.damages(key))
        yield from damages
        if damages and repair:
            yield f"moved {store.payload(key)} to {store.set_aside(key)}"


def unreachable(plans: list[Plan], artifacts: Artifacts, store: Store) -> list[str]:
    """The keys of the payloads that no recipe of the plans refers to.

    Raises:
        UserError: a planned artifact was not built yet, so that what it will find in the store is not known.
    """
    kept = set()
    for plan in plans:
        for name in plan.recipes:
            path = artifacts.reference(name)
            if not path.exists():
                raise UserError(f"{path}: not built yet; build every study that is to be kept before removing payloads")
            kept.add(read_reference(path)["key"])
    return [key for key in store.payload_keys() if key not in kept]


def leftovers(store: Store, *, unfinished: bool) -> list[Path]:
    """Folders of work that a killed job left behind: what is of no more use, and on demand all that no job is at.

    The former belongs to payloads that were published or removed; the latter are checkpoints and blocks that another
    run would go on from, and the payloads that `verify --repair` moved aside.
    """
    found = []
    for folder in sorted(store.root.glob(".partial/*/")):
        useless = folder.suffix == ".removed" or store.manifest(folder.name) is not None
        if useless or (unfinished and not _is_held(folder)):
            found.append(folder)
    return found + (sorted(store.root.glob(".damaged/*/")) if unfinished else [])
