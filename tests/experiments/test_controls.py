"""X1, X2 and X5: their needs, their tables and claims from known rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import robustfeatures.experiments.x1_robust_feature_leakage as x1
import robustfeatures.experiments.x2_learning_from_errors as x2
import robustfeatures.experiments.x5_attack_success as x5
from robustfeatures.derived.settings import Misclassified
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.study import Study, read_study
from robustfeatures.training.settings import Model
from tests.conftest import REPOSITORY
from tests.experiments.known_rows import SEEDS, jitter, make_evaluations, make_results, verdicts


@pytest.fixture
def study() -> Study:
    return read_study(REPOSITORY / "workflow" / "studies" / "digits-full.yaml")


def test_x1_takes_chance_from_what_leaks() -> None:
    linear = {"D": 90.0, "D_rand": 30.0, "D_det": 4.0}
    measurements = pd.DataFrame(
        [
            {"row": x1.LINEAR, "seed": seed, "trained_on": name, "accuracy": (value + jitter(seed)) / 100}
            | {"usefulness": 0.2 + 0.01 * seed, "stable": (70.0 + seed) / 100}
            for name, value in linear.items()
            for seed in SEEDS
        ]
    )
    networks = {("D", 0): 99.0, ("D_rand", 0): 46.0, ("D_det", 0): 40.0}
    # On the permuted labels, which no claim is about.
    networks |= {("D", 1): 1.0, ("D_rand", 1): 6.0, ("D_det", 1): 50.0}
    evaluations = make_evaluations(networks, ("row", "label_shift"), eps=0.0, chance=10.0)
    given = make_results(x1.Settings(), evaluations, measurements=measurements)
    claims = x1.claims(given)
    assert [claim.judge()["value"] for claim in claims] == [20.0, 6.0, -2.0, -9.0, 0.21]
    assert verdicts(claims) == ["held", "held", "contradicted", "contradicted", "held"]
    assert all(claim.control for claim in claims)
    table = x1.table(given).set_index(["row", "features"])["accuracy"]
    assert table["D_rand", x1.LINEAR] == 30
    assert table["D_rand", x1.NETWORK] == 46


def test_x1_takes_its_features_from_an_adversarially_trained_network(study: Study) -> None:
    needs = [need for need in x1.needs(Pieces(study), x1.Settings()) if need.row == x1.LINEAR]
    assert len(needs) == len(study.seeds)
    for need in needs:
        parameters = need.recipe.inputs["model"].parameters
        assert isinstance(parameters, Model)
        assert parameters.architecture.name == "linear"
        assert parameters.training.adversary is not None


def test_x2_learns_from_errors_alone(study: Study) -> None:
    settings = x2.Settings(source="stopped-early", training="downstream", architecture="narrow-cnn")
    needs = {need.row: need.recipe for need in x2.needs(Pieces(study), settings) if need.seed == 1}
    weak, learned = (needs[row].inputs["model"] for row in (x2.WEAK, x2.ERRORS))
    errors = learned.inputs["data"]
    assert errors.parameters.method == Misclassified(kind="errors")  # type: ignore[union-attr]
    assert errors.inputs["source"] is weak
    assert learned.parameters.architecture == weak.parameters.architecture  # type: ignore[union-attr]
    assert learned.parameters.seed != weak.parameters.seed  # type: ignore[union-attr]
    on_train = needs["D, stopped early (tested on the train split)"]
    assert on_train.inputs["model"] is weak
    assert on_train.parameters.split == "train"  # type: ignore[union-attr]
    beside = needs[x2.DETERMINISTIC].inputs["model"].inputs["data"]
    assert beside.digest == Pieces(study).derived("D_det", 1).digest


def test_x2_asks_errors_for_a_tenth_of_the_way_from_chance() -> None:
    """19 % of ten classes; what a network of errors makes of permuted labels is another question."""
    rows = make_evaluations({(x2.ERRORS, 0): 49.7, (x2.ERRORS, 1): 90.0}, ("row", "label_shift"), eps=0.0, chance=10.0)
    (claim,) = x2.claims(make_results(evaluations=rows))
    assert list(claim.values) == pytest.approx([49.7 + jitter(seed) - 19 for seed in SEEDS])


def test_x5_measures_each_set_on_the_network_that_made_it(study: Study) -> None:
    """D itself was made by none and is shown to the standard network."""
    needs = {need.row: need.recipe.inputs for need in x5.needs(Pieces(study), x5.Settings()) if need.seed == 1}
    for name in x5.DERIVED_SETS:
        assert needs[name]["source"].digest == needs[name]["data"].inputs["source"].digest
    sources = {name: inputs["source"].parameters for name, inputs in needs.items()}
    robust = {name for name, each in sources.items() if isinstance(each, Model) and each.training.adversary}
    assert robust == {"D_rand-robust", "D_det-robust"}


def test_x5_counts_only_images_with_another_target() -> None:
    rows = [
        {"row": row, "seed": seed, "augmentation": augmentation, "images": 1000, "targeted": targeted}
        | {"reached": reached + seed - 1, "kept": kept + seed - 1}
        for row, targeted, reached, kept in (
            ("D_rand", 900, 891, 100),
            ("D_det", 1000, 800, 150),
            ("D_rand-robust", 900, 45, 700),
            ("D_det-robust", 1000, 200, 700),
            ("D", 0, 0, 990),
        )
        for augmentation in ("none", "augmented")
        for seed in SEEDS
    ]
    given = make_results(x5.Settings(), measurements=pd.DataFrame(rows))
    claims = x5.claims(given)
    assert [claim.judge()["value"] for claim in claims] == [9.0, 9.0, -10.0, -10.0, 5.0, -10.0]
    assert verdicts(claims) == ["held", "held", "contradicted", "contradicted", "held", "contradicted"]
    assert all(claim.control for claim in claims)
    table = x5.table(given).set_index(["row", "augmentation"])
    assert table.loc[("D_rand", "none"), "success"] == 99
    assert np.isnan(table.loc[("D", "none"), "success"])
    assert table.loc[("D", "none"), "kept"] == 99
