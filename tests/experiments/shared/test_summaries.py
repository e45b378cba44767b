"""Means, intervals and published values of any quantities."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from robustfeatures.experiments.experiment import Results
from robustfeatures.experiments.shared.intervals import confidence_interval
from robustfeatures.experiments.shared.summaries import add_published, correlation, select_by_seed, summarise_seeds

# Student's t of 2 degrees of freedom, from a printed table.
T_OF_2 = 4.302653

ROWS = pd.DataFrame(
    [
        {"row": row, "seed": seed, "radius": scale * (1 + seed), "gap": 1e-7 * (2 + seed)}
        for row, scale in (("b", 3.0), ("a", 0.5))
        for seed in (0, 1, 2)
    ]
)


def results(*, comparable: bool) -> Results:
    published = pd.DataFrame([{"row": "a", "radius": 1.25}, {"row": "c", "radius": 9.0}])
    return Results(
        evaluations=pd.DataFrame(),
        histories=pd.DataFrame(),
        measurements=ROWS,
        payloads={},
        settings=None,
        published=published,
        comparable=comparable,
    )


def test_several_quantities() -> None:
    """Values s, 2s, 3s: mean 2s, standard deviation s, interval 2s +- t s / sqrt(3)."""
    table = summarise_seeds(ROWS, ["row"], values=["radius", "gap"])
    assert list(table["row"]) == ["b", "a"]
    assert list(table["seeds"]) == [3, 3]
    for name, scales in (("radius", [3.0, 0.5]), ("gap", [1e-7, 1e-7])):
        for scale, (_, line) in zip(scales, table.iterrows(), strict=True):
            middle = 2 * scale if name == "radius" else 3 * scale
            half = T_OF_2 * scale / math.sqrt(3)
            found = [line[name], line[f"{name}_std"], line[f"{name}_low"], line[f"{name}_high"]]
            # Six significant digits.
            assert found == pytest.approx([middle, scale, middle - half, middle + half], rel=5e-6)


def test_one_seed_has_no_spread() -> None:
    table = summarise_seeds(ROWS[ROWS["seed"] == 0], ["row"], values=["gap"])
    assert table[["gap_std", "gap_low", "gap_high"]].isna().all(axis=None)
    assert list(table["gap"]) == [2e-7, 2e-7]
    assert all(map(math.isnan, confidence_interval([1.0])))


def test_a_seed_without_a_value_is_not_counted() -> None:
    rows = ROWS.assign(radius=ROWS["radius"].where(ROWS["seed"] < 2))
    table = summarise_seeds(rows, ["row"], values=["radius"])
    assert list(table["seeds"]) == [2, 2]
    assert list(table["radius"]) == [4.5, 0.75]
    assert table["radius_low"].notna().all()


def test_published_values_of_other_quantities() -> None:
    table = summarise_seeds(ROWS, ["row"], values=["radius", "gap"])
    beside = add_published(table, results(comparable=True), ["row"], values=["radius", "gap"])
    assert len(beside) == 2
    assert math.isnan(beside["published_radius"][0])
    assert list(beside.loc[1, ["published_radius", "difference_radius"]]) == [1.25, -0.25]
    # The paper does not print the other one.
    assert beside[["published_gap", "difference_gap"]].isna().all(axis=None)
    alone = add_published(table, results(comparable=False), ["row"], values=["radius"])
    assert alone[["published_radius", "difference_radius"]].isna().all(axis=None)


@pytest.mark.parametrize("comparable", [False, True])
def test_rows_of_two_tables_have_an_index_of_their_own(comparable: bool) -> None:
    table = summarise_seeds(ROWS, ["row"], values=["radius"])
    both = pd.concat([table, table.assign(row=["d", "e"])])
    beside = add_published(both, results(comparable=comparable), ["row"], values=["radius"])
    assert list(beside.index) == [0, 1, 2, 3]
    assert list(beside["row"]) == ["b", "a", "d", "e"]


def test_by_seed_takes_any_quantity() -> None:
    assert select_by_seed(ROWS, value="radius", row="b").to_dict() == {0: 3.0, 1: 6.0, 2: 9.0}


def test_correlation_is_pearsons_with_fishers_interval() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    y = x + rng.normal(size=40)
    found = correlation(x, y)
    assert found.value == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-12)
    half = 1.959964 / math.sqrt(len(x) - 3)
    assert found.low == pytest.approx(math.tanh(math.atanh(found.value) - half), abs=1e-6)
    assert found.high == pytest.approx(math.tanh(math.atanh(found.value) + half), abs=1e-6)
    few = correlation([0.0, 1.0, 2.0], [0.0, 1.0, 1.5])
    assert (few.low, few.high) == (-1.0, 1.0)
    constant = correlation([1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 2.0, 3.0])
    assert math.isnan(constant.value)
    assert (constant.low, constant.high) == (-1.0, 1.0)
