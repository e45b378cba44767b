"""Claims: sentences of a paper as predicates over measured rows, with their uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robustfeatures.experiments.shared.intervals import confidence_interval


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, which holds if `values` exceed `threshold`.

    There is one value per seed, in percentage points unless `quantity` says otherwise.
    """

    sentence: str
    source: str
    quantity: str
    values: Sequence[float]
    threshold: float = 0.0

    def judge(self) -> dict[str, object]:
        """The verdict as a row: value, 95 % interval over seeds (Student's t), lower end minus threshold as margin.

        The verdict is "held" if the whole interval lies above the threshold, "not tested" with fewer than two seeds.
        """
        values = np.asarray(self.values, dtype=float)
        mean = float(values.mean()) if len(values) else float("nan")
        row: dict[str, object] = {
            "claim": self.sentence,
            "source": self.source,
            "quantity": self.quantity,
            "value": _round(mean),
            "threshold": self.threshold,
            "seeds": len(values),
        }
        if len(values) < 2:
            return {**row, "low": None, "high": None, "margin": None, "verdict": "not tested"}
        low, high = confidence_interval(values)
        margin = low - self.threshold
        return {
            **row,
            "low": _round(low),
            "high": _round(high),
            "margin": _round(margin),
            "verdict": "held" if margin > 0 else "not held",
        }


def _round(value: float) -> float:
    """Round to two decimals, or to four significant digits if |value| < 1."""
    return round(value, 2) if abs(value) >= 1 else float(f"{value:.4g}")
