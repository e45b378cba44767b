"""Results of B1 to B5 from known rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from robustfeatures.experiments import b2_transferring_examples as b2
from robustfeatures.experiments.experiment import Results
from tests.conftest import REPOSITORY
from tests.experiments.known_rows import complete

SEEDS = (0, 1, 2)
STUDIES = REPOSITORY / "workflow" / "studies"


def results(settings: Any, histories: pd.DataFrame | None = None, evaluations: pd.DataFrame | None = None) -> Results:
    nothing = pd.DataFrame()
    return Results(
        evaluations=nothing if evaluations is None else complete(evaluations),
        histories=nothing if histories is None else histories,
        measurements=nothing,
        payloads={},
        settings=settings,
    )


def verdicts(claims: list[Any]) -> list[object]:
    return [claim.judge()["verdict"] for claim in claims]


# The columns of an evaluation on these images, D relabelled among them.
TESTED: dict[str, dict[str, Any]] = {
    b2.SELECTION: {"label_shift": 0, "split": "validation", "eps": 0.0},
    "D": {"label_shift": 0, "split": "test", "eps": 0.0},
    "D_shift": {"label_shift": 1, "split": "test", "eps": 0.0},
}


def grid_rows(sets: dict[str, Callable[[float, int], float]], rows: tuple[str, ...] = ("cell",)) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "row": row,
                "seed": seed,
                **TESTED[test_set],
                "accuracy": value(decay, seed),
                "learning_rate": rate,
                "augmentation": augmentation,
                "weight_decay": decay,
            }
            for row in rows
            for seed in SEEDS
            for rate, augmentation, decays in (
                (0.5, "none", (0.0, 1e-3, 2e-3, 3e-3)),
                (0.5, "crop_padding4_flip", (0.0, 3e-3)),
            )
            for decay in decays
            for test_set, value in sets.items()
        ]
    )
