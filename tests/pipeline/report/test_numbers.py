"""Numbers as text."""

from __future__ import annotations

import math

import pytest

from robustfeatures.pipeline.report.numbers import format_number, format_quantity

NAN = float("nan")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3, "3"),
        ("cat", "cat"),
        (None, ""),
        (NAN, ""),
        (0.0, "0"),
        (0.25, "0.25"),
        (1 / 3, "0.3333"),
        (-1.25e-7, "-1.25e-7"),
        (6.02214e23, "6.022e23"),
        (math.inf, "infinity"),
        (True, "True"),
    ],
)
def test_a_value_has_four_digits(value: object, shown: str) -> None:
    assert format_number(value) == shown


@pytest.mark.parametrize(
    ("values", "spread", "percent", "shown"),
    [
        # Percentages have two decimals, whatever the spread.
        ([98.974, 63.3, -3.4], 0.4111, True, ["98.97", "63.30", "-3.40", "0.41"]),
        ([5.0, NAN], NAN, True, ["5.00", "", ""]),
        # Two digits of the spread are meaningful.
        ([0.123456, 0.1], 0.0123, False, ["0.123", "0.100", "0.012"]),
        ([1234.56], 45.6, False, ["1235", "46"]),
        ([3.14159], NAN, False, ["3.142", ""]),
        ([2.0], 0.0, False, ["2.000", "0.000"]),
        # Very small and very large numbers share a power of ten.
        ([1.234e-7, 1.2e-7], 2e-9, False, ["1.234e-7", "1.200e-7", "0.020e-7"]),
        ([4.56e8], NAN, False, ["4.560e8", ""]),
        ([0.0], 0.0, False, ["0.000", "0.000"]),
    ],
)
def test_a_quantity_has_the_digits_that_its_spread_leaves(
    values: list[float], spread: float, percent: bool, shown: list[str]
) -> None:
    assert format_quantity([values], [spread], percent=percent) == [shown]


@pytest.mark.parametrize(
    ("means", "spreads", "shown"),
    [
        # The middle spread of 15, 0.71 and 2.6 has two digits with one decimal.
        ([30.0, 39.75, 7.125], [15.0, 0.71, 2.6], [["30.0", "15.0"], ["39.8", "0.7"], ["7.1", "2.6"]]),
        ([0.7071, 0.5], [NAN, NAN], [["0.7071", ""], ["0.5000", ""]]),
        # No precision suits both.
        ([1.25e-9, 0.5], [NAN, NAN], [["1.250e-9", ""], ["0.5000", ""]]),
        ([2.5e-9, 1e-10], [NAN, NAN], [["2.5000e-9", ""], ["0.1000e-9", ""]]),
    ],
)
def test_a_column_has_one_precision(means: list[float], spreads: list[float], shown: list[list[str]]) -> None:
    assert format_quantity([[mean] for mean in means], spreads, percent=False) == shown
