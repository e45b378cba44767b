"""Which gates of a study were not reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from robustfeatures.experiments.shared.attack_success import add_shares
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.gates import CLEAN_ACCURACY

if TYPE_CHECKING:
    import pandas as pd


def describe_failure(gate: Mapping[str, Any], rows: pd.DataFrame) -> str | None:
    """A line on a gate's record if its measurement has less than the gate asks for, else None.

    `rows` are those of the recipe that measures it.
    """
    if gate["kind"] == CLEAN_ACCURACY:
        name, (reached,) = "clean accuracy", percent(rows["correct"] / rows["total"])
    else:
        name, (reached,) = "attack success", add_shares(rows[rows["augmentation"] == "none"])["success"]
    # A share such as 849 of 1000 is no exact binary number.
    if reached > gate["least"] - 1e-9:
        return None
    return f"{gate['subject']}: {name} of {reached:.2f} %, and the study asks for {gate['least']:g} %"


def describe_failures(lines: Sequence[str]) -> str:
    """All failures in a few words."""
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f"not tested, because of {lines[0]}{more}"
