"""Numbers as text, with the digits that the spread over seeds leaves meaningful."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import median_low

# Outside these powers of ten a number has an exponent.
SMALLEST, LARGEST = -4, 6
PERCENT_DECIMALS = 2
# A column whose values span more powers of ten has no precision that suits all of them.
SPAN = 4


def format_number(value: object) -> str:
    """A value of any kind as text: a float has four significant digits, a missing value is empty."""
    if not isinstance(value, float):
        return "" if value is None else str(value)
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    return shorten_exponent(f"{value:.4g}")


def format_quantity(rows: Sequence[Sequence[float]], spreads: Sequence[float], *, percent: bool) -> list[list[str]]:
    """The values of one quantity as text, row by row, each row with its spread at its end.

    A percentage has two decimals. All values of another quantity have the same decimals: two significant digits of the
    median spread, or without spreads four of the median value. If the values span more than `SPAN` powers of ten, each
    row has decimals of its own. Missing values are empty.
    """
    sizes = [next((abs(value) for value in row if math.isfinite(value) and value), 0.0) for row in rows]
    powers = [_power(size) for size in sizes if size] or [0]
    if percent:
        return [_format_row(row, spread, 0, PERCENT_DECIMALS) for row, spread in zip(rows, spreads, strict=True)]
    if max(powers) - min(powers) > SPAN and len(rows) > 1:
        return [format_quantity([row], [spread], percent=False)[0] for row, spread in zip(rows, spreads, strict=True)]
    known = [_power(spread) - 1 for spread in spreads if math.isfinite(spread) and spread > 0]
    smallest = median_low(known) if known else median_low(powers) - 3
    exponent = 0 if SMALLEST <= max(powers) < LARGEST else max(powers)
    decimals = min(max(exponent - smallest, 0), 9)
    return [_format_row(row, spread, exponent, decimals) for row, spread in zip(rows, spreads, strict=True)]


def format_column(values: Sequence[float], *, percent: bool) -> list[str]:
    """Values of one quantity without spreads as text, all with the same decimals."""
    return [
        text for text, _ in format_quantity([[value] for value in values], [math.nan] * len(values), percent=percent)
    ]


def _power(value: float) -> int:
    return math.floor(math.log10(value))


def _format_row(row: Sequence[float], spread: float, exponent: int, decimals: int) -> list[str]:
    end = f"e{exponent}" if exponent else ""
    values = (*row, spread)
    return [f"{value / 10.0**exponent:.{decimals}f}{end}" if math.isfinite(value) else "" for value in values]


def shorten_exponent(text: str) -> str:
    """Write 1.2e-05 as 1.2e-5."""
    return re.sub(r"e([+-])0*(\d+)$", lambda found: f"e{found[1].strip('+')}{found[2]}", text)
