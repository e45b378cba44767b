"""What the top of the page says of a study: its data with sample images, when, where and with what it was computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustfeatures.pipeline.report.embedding import Embedded, embed_sample
from robustfeatures.pipeline.store.references import read_reference, sum_computing

if TYPE_CHECKING:
    from robustfeatures.pipeline.report.building import ViewJob

# The sample images of a data set, each of another class where there are as many.
SAMPLES = 10
# What a study makes, by stage.
MADE = {
    "data": ("data set", "data sets"),
    "model": ("trained network", "trained networks"),
    "derived": ("derived data set", "derived data sets"),
    "evaluation": ("evaluation under attack", "evaluations under attack"),
    "measurement": ("other measurement", "other measurements"),
}


@dataclass(frozen=True)
class DataFacts:
    """One data set: its name, images per split, (C, H, W), number of classes, and sample images with their class."""

    name: str
    splits: Mapping[str, int]
    shape: tuple[int, int, int]
    classes: int
    samples: Sequence[tuple[str, Embedded]]


@dataclass(frozen=True)
class StudyFacts:
    """The references of all artifacts that a study builds on, one for each payload, and its data sets."""

    references: Sequence[Mapping[str, Any]]
    data: Sequence[DataFacts]

    @cached_property
    def made(self) -> list[str]:
        """How many artifacts of each stage: "8 trained networks"."""
        counts = Counter(reference["stage"] for reference in self.references)
        return [f"{counts[stage]} {words[counts[stage] > 1]}" for stage, words in MADE.items() if counts[stage]]

    @cached_property
    def dates(self) -> list[str]:
        """The first and the last day on which an artifact was made; one if they are the same."""
        days = [reference["built"]["started"][:10] for reference in self.references]
        return list(dict.fromkeys([min(days), max(days)])) if days else []

    @cached_property
    def commits(self) -> list[str]:
        """The commits of this repository at which artifacts were made."""
        return self._different(lambda built: built["git_commit"] or "unknown")

    @cached_property
    def machines(self) -> list[str]:
        """The machines and devices."""
        return self._different(lambda built: f"{built['machine']}, {built['device']}")

    @cached_property
    def versions(self) -> list[str]:
        """Python and the packages that artifacts were made with, each with its versions."""
        found: dict[str, dict[str, None]] = {}
        for built in self._built:
            for name, version in {"Python": built["python"], **built["packages"]}.items():
                found.setdefault(name, {})[version] = None
        return [f"{name} {' and '.join(versions)}" for name, versions in found.items()]

    @cached_property
    def computing_time(self) -> str:
        """The time inside training, attack and evaluation, all jobs together, and that of each stage."""
        by_stage = sum_computing(self.references)
        parts = [
            f"{words[1]} {describe_seconds(by_stage[stage])}" for stage, words in MADE.items() if stage in by_stage
        ]
        whole = f"{describe_seconds(sum(by_stage.values()))} of computing"
        return f"{whole}: {', '.join(parts)}" if len(parts) > 1 else whole

    @property
    def _built(self) -> list[Mapping[str, Any]]:
        return [reference["built"] for reference in self.references]

    def _different(self, describe: Any) -> list[str]:
        return list(dict.fromkeys(describe(built) for built in self._built))


def read_facts(view: ViewJob) -> StudyFacts:
    """The facts of the study of a page, from the references of all that its views build on."""
    found = [
        read_reference(view.artifacts.find(f"{recipe['stage']}/{recipe['label']}-{recipe['digest']}"))
        for recipe in view.recipes()
    ]
    data = [
        describe_data(reference["recipe"]["family"], view.store.payload(reference["key"]) / "data.zarr")
        for reference in found
        if reference["stage"] == "data"
    ]
    # Two names of a study may stand for one payload.
    return StudyFacts(list({reference["key"]: reference for reference in found}.values()), data)


def describe_data(name: str, path: Path) -> DataFacts:
    """The facts of one data set, from its zarr store."""
    from robustfeatures.pipeline.store.datasets import list_splits, read_dataset

    splits = {
        split: read_dataset(path, split, in_memory=False)
        for split in ("train", "validation", "test")
        if split in list_splits(path)
    }
    shown = splits.get("test") or next(iter(splits.values()))
    rows = choose_samples(shown.labels)
    pixels = np.round(shown.float_images(np.array(rows)) * np.float32(255)).astype(np.uint8)
    samples = [
        (shown.class_names[shown.labels[row]], embed_sample(image)) for row, image in zip(rows, pixels, strict=True)
    ]
    sizes: dict[str, int] = {split: len(dataset) for split, dataset in splits.items()}
    return DataFacts(name, sizes, shown.image_shape, shown.num_classes, samples)


def choose_samples(labels: Iterable[int]) -> list[int]:
    """The first image of each class, then the first of the others, up to ten rows in the order of the classes."""
    labels = list(labels)
    first = {label: row for row, label in reversed(list(enumerate(labels)))}
    rows = [first[label] for label in sorted(first)][:SAMPLES]
    others = (row for row in range(len(labels)) if row not in set(rows))
    rows += [row for row, _ in zip(others, range(SAMPLES - len(rows)), strict=False)]
    return sorted(rows, key=lambda row: (labels[row], row))


def describe_seconds(seconds: float) -> str:
    """A duration in the unit that fits: "12 s", "3.5 minutes", "7.2 hours"."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"
