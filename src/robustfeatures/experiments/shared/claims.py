"""Claims: sentences of a paper as predicates over measured rows, with their uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robustfeatures.experiments.shared.intervals import interval


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, restated so that it holds when `values` exceed `threshold`.

    There is one value per seed, in percentage points unless `quantity` says otherwise.
    """

    sentence: str
    source: str
    quantity: str
    values: Sequence[float]
    threshold: float = 0.0

    def judged(self) -> dict[str, object]:
        """The verdict as a row: value, 95 % interval over seeds (Student's t), margin of the nearer end.

        Held only if the whole interval lies above the threshold; "not tested" with fewer than two seeds.
        """
        values = np.asarray(self.values, dtype=float)
        mean = float(values.mean()) if len(values) else float("nan")
        row: dict[str, object] = {
            "claim": self.sentence,
            "source": self.source,
            "quantity": self.quantity,
            "value": _rounded(mean),
            "threshold": self.threshold,
            "seeds": len(values),
        }
        if len(values) < 2:
            return {**row, "low": None, "high": None, "margin": None, "verdict": "not tested"}
        low, high = interval(values)
        margin = low - self.threshold
        return {
            **row,
            "low": _rounded(low),
            "high": _rounded(high),
            "margin": _rounded(margin),
            "verdict": "held" if margin > 0 else "not held",
        }


def _rounded(value: float) -> float:
    """Two decimals, or four significant digits of what is smaller than one."""
    return round(value, 2) if abs(value) >= 1 else float(f"{value:.4g}")
