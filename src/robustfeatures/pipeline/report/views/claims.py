"""The claims file: every statement of the papers that a study tests, with its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from robustfeatures.pipeline.report.building import ViewJob

COLUMNS = (
    "experiment",
    "claim",
    "verdict",
    "value",
    "margin",
    "seeds",
    "low",
    "high",
    "threshold",
    "quantity",
    "source",
)


def make(view: ViewJob) -> Mapping[str, bytes]:
    """The contents of `claims.csv`: one row per claim, values in percentage points."""
    rows = [
        {"experiment": experiment.id, **claim.judge()}
        for experiment, results in view.experiments()
        for claim in (experiment.claims(results) if experiment.claims else ())
    ]
    return {".csv": pd.DataFrame(rows, columns=COLUMNS).to_csv(index=False, lineterminator="\n").encode()}
