"""The accuracies of networks, read from the evaluations that are there."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.store.references import Artifacts, read_reference
from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.finding import BATCH


@dataclass(frozen=True)
class Accuracy:
    """The accuracy in percent under all attacks of an evaluation, at one radius; `on` is the data set and its split."""

    evaluation: str
    on: str
    norm: str
    eps: float
    accuracy: float


def find_accuracies(artifacts: Artifacts, store: Store) -> dict[str, list[Accuracy]]:
    """The accuracies of each evaluation, and those of each model, by `<stage>/<label>-<digest>`."""
    found: dict[str, list[Accuracy]] = {}
    for path in sorted(artifacts.root.glob("evaluation/*.json")):
        if BATCH.search(path.stem):
            continue
        name, reference = f"evaluation/{path.stem}", read_reference(path)
        recipe = reference["recipe"]
        rows = store.payload(reference["key"]) / "rows.csv"
        if rows.exists():
            on = f"{recipe['inputs']['data'].partition('/')[2].rpartition('-')[0]} {recipe['parameters']['split']}"
            read = _read_rows(rows, name, on, recipe["parameters"]["norm"])
            found[name] = read
            found.setdefault(recipe["inputs"]["model"], []).extend(read)
    return found


def _read_rows(path: Path, name: str, on: str, norm: str) -> list[Accuracy]:
    """The rows with true labels, after the last attack."""
    rows: dict[float, Mapping[str, str]] = {}
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        eps = float(row["eps"])
        if int(row["label_shift"]) == 0 and (eps not in rows or int(row["attacks"]) >= int(rows[eps]["attacks"])):
            rows[eps] = row
    return [
        Accuracy(name, on, norm, eps, percent(int(row["correct"]) / int(row["total"])))
        for eps, row in sorted(rows.items())
    ]


def describe_accuracies(accuracies: Sequence[Accuracy]) -> str:
    """The clean accuracy and that at the smallest radius, of the first evaluation; empty if there is none."""
    first = [one for one in accuracies if one.evaluation == accuracies[0].evaluation]
    clean = [f"clean {one.accuracy:.1f} %" for one in first if one.eps == 0]
    robust = [f"{one.norm} {one.eps:g}: {one.accuracy:.1f} %" for one in first if one.eps > 0]
    return ", ".join([*clean, *robust[:1]])
