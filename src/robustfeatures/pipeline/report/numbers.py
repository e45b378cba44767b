"""Numbers as text, with the digits that the spread over seeds leaves meaningful."""

from __future__ import annotations

import math
import re

# Outside these powers of ten a number has an exponent.
SMALLEST, LARGEST = -4, 6
PERCENT_DECIMALS = 2


def format_number(value: object) -> str:
    """A value of any kind as text: a float has four significant digits, a missing value is empty."""
    if not isinstance(value, float):
        return "" if value is None else str(value)
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    return shorten_exponent(f"{value:.4g}")


def format_quantity(values: list[float], spread: float, *, percent: bool) -> list[str]:
    """The values of one quantity as text, then its spread, all with the same number of decimals.

    A percentage has two decimals. Another quantity has two significant digits of the spread, or without a spread four
    of the first value. Missing values are empty.
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


def shorten_exponent(text: str) -> str:
    """Write 1.2e-05 as 1.2e-5."""
    return re.sub(r"e([+-])0*(\d+)$", lambda found: f"e{found[1].strip('+')}{found[2]}", text)
