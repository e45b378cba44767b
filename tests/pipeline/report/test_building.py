"""The evaluations that experiments receive: under all attacks together, and under each with those before it."""

from __future__ import annotations

import pandas as pd

from robustfeatures.attacks.evaluating.settings import PGD, Evaluation, Noise
from robustfeatures.pipeline.plan.canonical import to_json
from robustfeatures.pipeline.report.building import add_attack_names, split_by_attack

ATTACKS = (PGD(kind="pgd", steps=3, relative_step_sizes=(0.5,)), Noise(kind="noise", draws=2))


def read(rows: list[tuple[float, int, int]], attacks: int) -> pd.DataFrame:
    """Rows (eps, attacks, correct) of an evaluation that runs the first `attacks` attacks."""
    parameters = Evaluation(split="test", norm="l2", attacks=ATTACKS[:attacks], eps=(0.0, 0.5))
    frame = pd.DataFrame(rows, columns=["eps", "attacks", "correct"]).assign(total=10)
    return add_attack_names(frame, {"parameters": to_json(parameters)})


def test_evaluations_with_different_numbers_of_attacks() -> None:
    first = read([(0.0, 0, 9), (0.5, 1, 6), (0.5, 2, 4)], attacks=2).assign(row="first")
    second = read([(0.0, 0, 8), (0.5, 1, 5)], attacks=1).assign(row="second")
    together, single = split_by_attack(pd.concat([first, second], ignore_index=True))
    assert list(together.columns) == ["eps", "correct", "total", "row", "accuracy"]
    assert [(row.row, row.eps, row.accuracy) for row in together.itertuples()] == [
        ("first", 0.0, 90.0),
        ("first", 0.5, 40.0),
        ("second", 0.0, 80.0),
        ("second", 0.5, 50.0),
    ]
    assert list(single.columns) == ["eps", "attack", "correct", "total", "row", "accuracy"]
    assert [(row.row, row.attack, row.accuracy) for row in single.itertuples()] == [
        ("first", ATTACKS[0].name, 60.0),
        ("first", ATTACKS[1].name, 40.0),
        ("second", ATTACKS[0].name, 50.0),
    ]
