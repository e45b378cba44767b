"""Results with rows that a test knows, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from robustfeatures.experiments.experiment import Experiment, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import has_learned
from robustfeatures.pipeline.report.building import read_published
from robustfeatures.pipeline.study.checks import PUBLISHED
from robustfeatures.pipeline.study.yaml import read_yaml

SEEDS = (0, 1, 2)
# Of the 203 ImageNet classes of Restricted ImageNet 118 are dogs. Each has 50 validation images.
DOGS = 100 * 118 / 203

NOTHING = pd.DataFrame()
# What evaluations of ten equal classes have, where a test says nothing else.
TEN_CLASSES = {"label_shift": 0, "classes": 10, "chance": 10.0}


def complete(evaluations: pd.DataFrame) -> pd.DataFrame:
    """The evaluations with the columns of `TEN_CLASSES`, and whether the networks have learned something."""
    if not len(evaluations):
        return evaluations
    lacking = {name: value for name, value in TEN_CLASSES.items() if name not in evaluations}
    found = evaluations.assign(**lacking)
    return found.assign(learned=has_learned(found["accuracy"], found["chance"]))


def make_results(
    settings: Any = None,
    evaluations: pd.DataFrame = NOTHING,
    histories: pd.DataFrame = NOTHING,
    measurements: pd.DataFrame = NOTHING,
    **found: Any,
) -> Results:
    """Results without rows, except those that are given."""
    return Results(complete(evaluations), histories, measurements, **{"payloads": {}, **found}, settings=settings)


def verdicts(claims: Iterable[Claim]) -> list[str]:
    return [str(claim.judge()["verdict"]) for claim in claims]


def jitter(seed: int) -> float:
    """A little spread, so that intervals have a width."""
    return 0.1 * (seed - 1)


def make_evaluations(values: Mapping[tuple[Any, ...], float], columns: tuple[str, ...], **fixed: Any) -> pd.DataFrame:
    """A row for each of three seeds and each key of `values`, which has the values of `columns`."""
    return pd.DataFrame(
        [
            {**dict(zip(columns, key, strict=True)), "seed": seed, "accuracy": value + jitter(seed), **fixed}
            for key, value in values.items()
            for seed in SEEDS
        ]
    )


def published_rows(experiment: str, setting: str = "CIFAR-10", **fixed: Any) -> pd.DataFrame:
    """The rows that the paper prints, for each of three seeds with a little spread."""
    entries = read_yaml(PUBLISHED / "not-bugs-2019.yaml")[experiment]
    (rows,) = (entry["rows"] for entry in entries if entry["setting"] == setting)
    return pd.DataFrame(
        [{**row, "seed": seed, "accuracy": row["accuracy"] + jitter(seed), **fixed} for row in rows for seed in SEEDS]
    )


def with_published(experiment: Experiment, setting: str, settings: Any, **found: Any) -> Results:
    """Results beside what the paper prints for a setting."""
    printed = read_published(experiment, setting)
    assert printed is not None
    return make_results(
        settings,
        **found,
        published=pd.DataFrame(printed["rows"]),
        published_source=printed["source"],
        published_setting=printed["setting"],
        comparable=printed["setting"] == setting,
    )
