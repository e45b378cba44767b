"""Describe one artifact for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from robustfeatures.experiments.shared.units import percent
from robustfeatures.files import read_json, read_rows
from robustfeatures.pipeline.plan.identity import differences, flatten
from robustfeatures.pipeline.plan.view import artifacts_of
from robustfeatures.pipeline.report.building import attack_names
from robustfeatures.pipeline.store.references import Artifacts, read_recipe, read_reference
from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.accuracies import find_accuracies, find_whole

# From low to high.
BLOCKS = "▁▂▃▄▅▆▇█"


def show(path: Path, store: Store, *, curves: bool = False) -> Iterator[str]:
    """Lines on one artifact: its stage, settings, inputs, numbers, cost and folder.

    The numbers of a network are its accuracies in the evaluations that are there. With `curves`, what was measured in
    training is also drawn, one character for each epoch.
    """
    if (files := files_of_view(path)) is not None:
        yield f"{path.stem}: stage {path.parent.name}"
        yield from (f"  {name}" for name in files)
        yield "made from"
        yield from (f"  {artifact}" for artifact in needs_of_view(path))
        return
    reference = read_reference(path)
    built, recipe = reference["built"], reference["recipe"]
    yield f"{reference['label']}: stage {reference['stage']}, content {reference['content']}"
    yield "settings"
    yield from (f"  {name}: {value}" for name, value in flatten(recipe["parameters"]))
    yield "made from"
    yield from (f"  {role}: {artifact}" for role, artifact in recipe["inputs"].items())
    folder = store.payload(reference["key"])
    whole = find_whole(store, reference, ("rows.csv", "history.csv"))
    paths = {file.name: file for file in whole or []}
    numbers = [*_numbers(paths, recipe), *_model_numbers(path, store)]
    if curves and "history.csv" in paths:
        numbers += _curves(paths["history.csv"])
    if numbers:
        yield "numbers"
        yield from (f"  {line}" for line in numbers)
    yield (
        f"cost: {built['computing_seconds']:.1f} s of computing on {built['device']} of {built['host']} "
        f"({built['machine']})"
        + (f", {built['probe_seconds']:.1f} s of these in probes" if "probe_seconds" in built else "")
        + f"; the job that finished it began on {built['started']} and took {built['seconds']:.1f} s"
        + (f"; the network is copied from {built['copied_from']}" if "copied_from" in built else "")
    )
    versions = ", ".join(f"{name} {version}" for name, version in built["packages"].items())
    yield f"made with: Python {built['python']}, {versions}; commit {built['git_commit'] or 'unknown'}"
    yield from accepted_lines(reference)
    there = "" if whole is not None else " (missing or damaged; --store names another store)"
    yield f"lies in: {folder}{there}, {reference['bytes'] / 1e6:.2f} MB"


def accepted_lines(reference: Mapping[str, Any]) -> Iterator[str]:
    """What was accepted, why and when, where other code made the payload of a reference; otherwise nothing."""
    if "accepted" not in reference:
        return
    accepted, identity = reference["accepted"], reference["recipe"]["identity"]
    yield f"made by other code, and accepted for the present code on {accepted['when']}: {accepted['reason']}"
    yield from (f"  {line}" for line in differences(identity, {**identity, **accepted["before"]}))
    yield f"  made again with the same bytes: {', '.join(accepted['compared'])}"


def files_of_view(path: Path) -> list[str] | None:
    """The files of a table, figure, claims file or page, below the results folder; None for other references."""
    try:
        view = read_json(path)
        view["recipe"]["parts"]
        return list(view["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def needs_of_view(path: Path) -> list[str]:
    """The artifacts that a table, figure, claims file or page builds on, each once.

    A page builds on what its tables, figures and claims show.
    """
    artifacts, _ = Artifacts.of(path)
    record = read_json(path)["recipe"]
    # References that an earlier version wrote have no views.
    below = (view["artifact"] for view in record.get("views", ()))
    records = [record, *(read_recipe(artifacts, view) for view in below if artifacts.plan(view).exists())]
    return artifacts_of(part for each in records for part in each["parts"])


def _numbers(files: Mapping[str, Path], recipe: Mapping[str, Any]) -> Iterator[str]:
    if "rows.csv" in files:
        for row in read_rows(files["rows.csv"]):
            if "correct" not in row:
                yield ", ".join(f"{name} {value}" for name, value in row.items())
                continue
            share = percent(int(row["correct"]) / int(row["total"]))
            under = _under(int(row["attacks"]), attack_names(recipe))
            yield f"eps {row['eps']}, labels shifted by {row['label_shift']}{under}: {share:.2f} % of {row['total']}"
    if "history.csv" in files:
        history = read_rows(files["history.csv"])
        for row in history:
            if row["epoch"] == history[-1]["epoch"]:
                on = "" if row["network"] == "itself" else f" on {row['network']}"
                yield f"epoch {row['epoch']}, {row['probe']}{on}: {float(row['value']):.4f}"


def _model_numbers(path: Path, store: Store) -> Iterator[str]:
    """The accuracies of a network in each evaluation."""
    artifacts, name = Artifacts.of(path)
    if path.parent.name != "model":
        return
    for one in find_accuracies(artifacts, store).get(name, ()):
        radius = "clean" if one.eps == 0 else f"{one.norm} eps {one.eps:g}"
        yield f"{one.on}, {radius}: {one.accuracy:.2f} %"


def _curves(history: Path) -> Iterator[str]:
    """Each curve of a training with probes, drawn between its smallest and its largest value."""
    curves: dict[str, list[float]] = {}
    for row in read_rows(history):
        on = "" if row["network"] == "itself" else f" on {row['network']}"
        curves.setdefault(f"{row['probe']}{on}", []).append(float(row["value"]))
    for name, values in curves.items():
        yield f"{draw_curve(values)} {name}, {min(values):.3f} to {max(values):.3f}"


def draw_curve(values: Sequence[float]) -> str:
    """One block for each value, between the smallest and the largest."""
    low, width = min(values), max(values) - min(values)
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round(top * (value - low) / width)] if width else BLOCKS[0] for value in values)


def _under(attacks: int, names: Sequence[str]) -> str:
    """The last of the `attacks` that have run; empty if none or all of `names` have run."""
    return f", {names[attacks - 1]} and what ran before it" if 0 < attacks < len(names) else ""
