"""A3: what architectures learn from D_det, and how often they are fooled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from scipy import stats

import robustfeatures.experiments.a3_transferability as a3
from robustfeatures.experiments.experiment import Results
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.study import Study, read_study
from tests.conftest import REPOSITORY
from tests.experiments.known_rows import SEEDS, jitter, make_results

ACCURACY = {"own": 40.0, "b": 30.0, "c": 35.0, "d": 10.0, "e": 20.0}
RATE = {"own": 80.0, "b": 60.0, "c": 65.0, "d": 30.0, "e": 55.0}


@pytest.fixture(scope="module")
def study() -> Study:
    return read_study(REPOSITORY / "workflow" / "studies" / "digits-full.yaml")


def transfers() -> Results:
    evaluations = [
        {"row": row, "seed": seed, "label_shift": shift, "eps": 0.0, "accuracy": value + jitter(seed) + 50 * shift}
        for row, value in ACCURACY.items()
        for seed in SEEDS
        for shift in (0, 1)
    ]
    measurements = [
        {
            "row": source,
            "seed": seed,
            "target": target,
            "attack": attack,
            "fooled": 0 if (target, attack) == ("b", "targeted") and source == "own" and seed == 2 else 1000,
            "transferred": 10 * (RATE[target] if source == "own" else 5) / (2 if attack == "targeted" else 1),
        }
        for source in ACCURACY
        for target in ACCURACY
        for attack in a3.ATTACKS
        for seed in SEEDS
    ]
    return make_results(None, pd.DataFrame(evaluations), measurements=pd.DataFrame(measurements))


def test_a3_correlates_what_architectures_learn_with_how_often_they_are_fooled() -> None:
    given = transfers()
    found = stats.pearsonr(list(ACCURACY.values()), list(RATE.values()))
    untargeted, targeted = (claim.judge() for claim in a3.claims(given))
    assert untargeted["value"] == pytest.approx(found.statistic, abs=1e-4)
    # One sentence in two settings.
    assert (untargeted["claim"], untargeted["source"]) == (targeted["claim"], targeted["source"])
    # The interval is over the five architectures, not over the seeds, which differ by next to nothing.
    ends = found.confidence_interval(0.95)
    assert [untargeted["low"], untargeted["high"]] == pytest.approx(list(ends), abs=1e-4)
    assert (untargeted["interval"], untargeted["verdict"]) == ("architectures", "held")
    # An attack that fools the source nowhere in one seed has no rate there; the mean is over the other seeds.
    assert targeted["value"] == pytest.approx(found.statistic, abs=1e-4)
    constant = replace(given, measurements=given.measurements.assign(transferred=0))
    judged = [claim.judge() for claim in a3.claims(constant)]
    assert [(row["value"], row["verdict"]) for row in judged] == [(0.0, "undecided")] * 2
    assert a3.figure(constant).get_axes()
    table = a3.table(given)
    assert len(table) == 2 * 25
    row = table[(table["row"] == "own") & (table["target"] == "c")].set_index("attack")
    assert row["transfer_rate"].to_dict() == {"untargeted": 65.0, "targeted": 32.5}
    assert set(row["accuracy"]) == {35.0}
    assert a3.figure(given).get_axes()


@pytest.mark.parametrize(
    ("accuracies", "verdict"),
    [
        # Two groups of architectures are two points, whatever the seeds say.
        ({"own": 40.0, "b": 41.0, "c": 39.0, "d": 2.0, "e": 2.5}, "not tested"),
        # Four architectures are too few.
        ({"own": 40.0, "b": 30.0, "c": 20.0, "d": 10.0}, "not tested"),
        ({"own": 40.0}, "not tested"),
        # What one learns says nothing of how often it is fooled.
        ({"own": 30.0, "b": 40.0, "c": 10.0, "d": 35.0, "e": 20.0}, "undecided"),
    ],
)
def test_a3_is_judged_by_the_architectures_and_not_by_the_seeds(accuracies: dict[str, float], verdict: str) -> None:
    given = transfers()
    kept = {name: given.evaluations["row"].eq(name) for name in accuracies}
    evaluations = pd.concat(
        given.evaluations[rows].assign(accuracy=accuracies[name] + given.evaluations["seed"] / 100)
        for name, rows in kept.items()
    )
    measurements = given.measurements[given.measurements["target"].isin(accuracies)]
    claims = a3.claims(replace(given, evaluations=evaluations, measurements=measurements))
    assert [claim.judge()["verdict"] for claim in claims] == [verdict] * 2


def test_a3_carries_examples_between_networks_that_share_nothing(study: Study) -> None:
    settings = a3.Settings(architectures=("narrow-cnn", "wide-cnn", "linear"))
    needs = [need for need in a3.needs(Pieces(study), settings) if need.seed == 0]
    matrices = [need for need in needs if need.recipe.stage.name == "measurement"]
    assert [need.row for need in matrices] == ["small-cnn", "narrow-cnn", "wide-cnn", "linear"]
    roles: dict[str, str] = matrices[0].recipe.parameters.settings["targets"]  # type: ignore[union-attr]
    assert list(roles) == [need.row for need in matrices]
    carried = {role: matrices[0].recipe.inputs[role] for role in roles.values()}
    for need in matrices:
        assert {role: need.recipe.inputs[role] for role in carried} == carried
        assert need.recipe.inputs["source"].digest not in {recipe.digest for recipe in carried.values()}
        same = carried[roles[need.row]]
        # The same training of the same architecture, from another initialisation.
        assert replace(same.parameters, seed=0) == need.recipe.inputs["source"].parameters  # type: ignore[type-var]
    accuracies = [need.recipe.inputs["model"] for need in needs if need.recipe.stage.name == "evaluation"]
    assert {model.inputs["data"].digest for model in accuracies} == {Pieces(study).derived("D_det", 0).digest}
    attack: Any = study.derived["D_det"].method
    assert matrices[0].recipe.parameters.settings["eps"] == attack.eps  # type: ignore[union-attr]
