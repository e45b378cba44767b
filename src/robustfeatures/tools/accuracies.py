"""The accuracies of networks, read from the evaluations that are there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustfeatures.errors import UserError
from robustfeatures.experiments.shared.units import percent
from robustfeatures.files import read_rows
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
        for rows in find_whole(store, reference, ["rows.csv"]) or []:
            on = f"{recipe['inputs']['data'].partition('/')[2].rpartition('-')[0]} {recipe['parameters']['split']}"
            norm = recipe["parameters"]["norm"]
            found[name] = [
                Accuracy(name, on, norm, eps, percent(correct / total))
                for eps, (correct, total) in read_correct(rows).items()
            ]
            found.setdefault(recipe["inputs"]["model"], []).extend(found[name])
    return found


def find_whole(store: Store, reference: Mapping[str, Any], names: Collection[str]) -> list[Path] | None:
    """The files among `names` that the payload of a reference has; None if it is missing or one of them is damaged."""
    try:
        return store.verified(reference["key"], reference["content"], names)
    except UserError:
        return None


def read_correct(path: Path) -> dict[float, tuple[int, int]]:
    """By eps: the images with true labels that withstand all attacks of an evaluation, and all images."""
    rows = [row for row in read_rows(path) if row["label_shift"] == "0"]
    # Of each eps the row of the last attack stays.
    rows.sort(key=lambda row: (float(row["eps"]), int(row["attacks"])))
    return {float(row["eps"]): (int(row["correct"]), int(row["total"])) for row in rows}


def describe_accuracies(accuracies: Sequence[Accuracy]) -> str:
    """The clean accuracy and that at the smallest radius, of the first evaluation; empty if there is none."""
    first = [one for one in accuracies if one.evaluation == accuracies[0].evaluation]
    clean = [f"clean {one.accuracy:.1f} %" for one in first if one.eps == 0]
    robust = [f"{one.norm} {one.eps:g}: {one.accuracy:.1f} %" for one in first if one.eps > 0]
    return ", ".join([*clean, *robust[:1]])
