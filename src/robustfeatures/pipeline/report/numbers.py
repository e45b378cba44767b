"""Numbers as people read them: as many digits as the spread over seeds leaves meaningful."""

from __future__ import annotations

import math
import re

# Beyond these powers of ten a number is written with an exponent.
SMALLEST, LARGEST = -4, 6
PERCENT_DECIMALS = 2


def number(value: object) -> str:
    """A value of any kind as text: four significant digits of a float, nothing for a missing one."""
    if not isinstance(value, float):
        return "" if value is None else str(value)
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    return short_exponent(f"{value:.4g}")


def measured(values: list[float], spread: float, *, percent: bool) -> list[str]:
    """These values of one quantity and its spread, all with the same decimals: two of a percentage, else as many as
    show two digits of the spread, or four of the first value where there is no spread; the spread comes last.

    Missing values are empty.
    """
    size = next((abs(value) for value in values if math.isfinite(value) and value), 0.0)
    power = math.floor(math.log10(size)) if size else 0
    known = math.isfinite(spread) and spread > 0
    smallest = math.floor(math.log10(spread)) - 1 if known else power - 3
    if percent:
        texts = [f"{value:.{PERCENT_DECIMALS}f}" for value in (*values, spread)]
    elif not SMALLEST <= power < LARGEST:
        texts = [f"{value / 10.0**power:.{min(max(power - smallest, 0), 9)}f}e{power}" for value in (*values, spread)]
    else:
        texts = [f"{value:.{min(max(-smallest, 0), 9)}f}" for value in (*values, spread)]
    return [text if math.isfinite(value) else "" for text, value in zip(texts, (*values, spread), strict=True)]


def short_exponent(text: str) -> str:
    """1.2e-05 as 1.2e-5."""
    return re.sub(r"e([+-])0*(\d+)$", lambda found: f"e{found[1].strip('+')}{found[2]}", text)
