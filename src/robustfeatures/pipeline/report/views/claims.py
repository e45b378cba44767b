"""The claims file: every statement of the papers that a study tests, with its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from robustfeatures.experiments.shared.intervals import Interval
from robustfeatures.experiments.shared.resampling import can_resample, intervals_over_images
from robustfeatures.pipeline.report.building import ViewFiles
from robustfeatures.pipeline.report.gates import describe_failures

if TYPE_CHECKING:
    from robustfeatures.experiments.experiment import Experiment, Results
    from robustfeatures.experiments.shared.claims import Claim
    from robustfeatures.experiments.shared.resampling import Claims
    from robustfeatures.pipeline.report.building import ViewJob

COLUMNS = (
    "experiment",
    "claim",
    "setting",
    "control",
    "verdict",
    "value",
    "margin",
    "seeds",
    "low",
    "high",
    "interval",
    "threshold",
    "quantity",
    "source",
)
UNLEARNED = "; not tested: in a seed a network has learned nothing"


def make(view: ViewJob) -> ViewFiles:
    """The contents of `claims.csv`: one row per claim, values in percentage points."""
    rows = [row for experiment, results in view.experiments() for row in judge(experiment, results)]
    return ViewFiles({".csv": pd.DataFrame(rows, columns=COLUMNS).to_csv(index=False, lineterminator="\n").encode()})


def judge(experiment: Experiment, results: Results) -> list[dict[str, object]]:
    """The rows of one experiment's claims. With one seed their intervals are over test images where these are known.

    If a gate of the study failed, the rows have their values, but no intervals, and no claim is tested.
    """
    rows, fewest = [], _count_images(results)
    for function in filter(None, (experiment.claims, experiment.measured_claims)):
        claims = function(results)
        intervals: Sequence[Interval | None] = [None] * len(claims)
        if can_resample(function, results):
            intervals = intervals_over_images(function, results)
        reasons = _find_unlearned(function, results, claims)
        for claim, interval, reason in zip(claims, intervals, reasons, strict=True):
            row = claim.judge(interval, fewest)
            rows.append({"experiment": experiment.id, **row, "quantity": f"{row['quantity']}{reason}"})
    if results.failed_gates:
        untested = {"verdict": "not tested", "low": None, "high": None, "interval": "", "margin": None}
        reason = describe_failures(results.failed_gates)
        rows = [{**row, **untested, "quantity": f"{row['quantity']}; {reason}"} for row in rows]
    return rows


def _find_unlearned(function: Claims, results: Results, claims: Sequence[Claim]) -> list[str]:
    """For each claim `UNLEARNED`, if it would have a value if all networks had learned something, else nothing."""
    if "learned" not in results.evaluations or results.evaluations["learned"].all():
        return [""] * len(claims)
    others = function(replace(results, evaluations=results.evaluations.assign(learned=True)))
    return [
        UNLEARNED if np.isnan(claim.values).any() and not np.isnan(other.values).any() else ""
        for claim, other in zip(claims, others, strict=True)
    ]


def _count_images(results: Results) -> int | None:
    """The fewest images that a row of the results counts; None if no row counts images."""
    counted = ((results.evaluations, "total"), (results.histories, "images"), (results.measurements, "total"))
    # A row of a measurement that is no share of images counts none.
    return min(
        (int(count) for rows, name in counted if name in rows for count in rows[name] if count > 0), default=None
    )
