"""A3 to A11 and the controls: their needs, and their tables and claims from known rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import robustfeatures.experiments.a3_transferability as a3
import robustfeatures.experiments.a4_robust_test_set as a4
import robustfeatures.experiments.a6_accuracy_curves as a6
import robustfeatures.experiments.a8_fresh_test_set as a8
import robustfeatures.experiments.a11_other_architectures as a11
import robustfeatures.experiments.x1_robust_feature_leakage as x1
import robustfeatures.experiments.x2_learning_from_errors as x2
import robustfeatures.experiments.x5_attack_success as x5
from robustfeatures.derived.settings import Misclassified
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.models.settings import Architecture
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.study import Study, read_study
from tests.conftest import REPOSITORY

SEEDS = (0, 1, 2)
NOTHING = pd.DataFrame()


@pytest.fixture
def study() -> Study:
    return read_study(REPOSITORY / "workflow" / "studies" / "digits-full.yaml")


def results(
    settings: Any = None,
    evaluations: pd.DataFrame = NOTHING,
    histories: pd.DataFrame = NOTHING,
    measurements: pd.DataFrame = NOTHING,
) -> Results:
    return Results(evaluations, histories, measurements, payloads={}, settings=settings)


def verdicts(claims: list[Claim]) -> list[str]:
    return [str(claim.judge()["verdict"]) for claim in claims]


def jitter(seed: int) -> float:
    """A little spread, so that intervals have a width."""
    return 0.1 * (seed - 1)


ACCURACY = {"own": 40.0, "b": 30.0, "c": 35.0, "d": 10.0}
RATE = {"own": 80.0, "b": 60.0, "c": 65.0, "d": 30.0}


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
    return results(None, pd.DataFrame(evaluations), measurements=pd.DataFrame(measurements))


def test_a3_correlates_what_architectures_learn_with_how_often_they_are_fooled() -> None:
    given = transfers()
    untargeted, targeted = a3.claims(given)
    r = stats.pearsonr(list(ACCURACY.values()), list(RATE.values())).statistic
    assert list(untargeted.values) == pytest.approx([r] * 3)
    # An attack that fools the source nowhere has no rate; the seed is correlated over what is left.
    left = [name for name in ACCURACY if name != "b"]
    fewer = stats.pearsonr([ACCURACY[name] for name in left], [RATE[name] for name in left]).statistic
    assert list(targeted.values) == pytest.approx([r, r, fewer])
    constant = replace(given, measurements=given.measurements.assign(transferred=0))
    assert [list(claim.values) for claim in a3.claims(constant)] == [[0.0] * 3] * 2
    assert a3.figure(constant).get_axes()
    table = a3.table(given)
    assert len(table) == 2 * 16
    row = table[(table["row"] == "own") & (table["target"] == "c")].set_index("attack")
    assert row["transfer_rate"].to_dict() == {"untargeted": 65.0, "targeted": 32.5}
    assert set(row["accuracy"]) == {35.0}
    assert a3.figure(given).get_axes()


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


@pytest.mark.parametrize(
    ("names", "changes", "message"),
    [
        (("linear", "linear", "wide-cnn"), {}, r"^A3\.architectures: a name appears twice"),
        (("linear", "small-cnn", "wide-cnn"), {}, r"that of the study's own network, 'small-cnn'$"),
        (
            ("linear", "narrow-cnn", "wide-cnn"),
            {"derived": "D_R-noise"},
            r"^derived\.D_R-noise\.method: not an attack$",
        ),
    ],
)
def test_a3_says_what_it_cannot_carry(study: Study, names: Any, changes: dict[str, str], message: str) -> None:
    study = replace(study, other_architectures={**study.other_architectures, "small-cnn": Architecture(name="linear")})
    with pytest.raises(UserError, match=message):
        a3.needs(Pieces(study), a3.Settings(architectures=names, **changes))


def make_evaluations(values: dict[tuple[str, ...], float], columns: tuple[str, ...], **fixed: Any) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {**dict(zip(columns, key, strict=True)), "seed": seed, "accuracy": value + jitter(seed), **fixed}
            for key, value in values.items()
            for seed in SEEDS
        ]
    )


def test_a4_splits_the_loss_of_robustness_in_two(study: Study) -> None:
    values = {
        (name, test_set, eps): accuracy - 20 * (eps == 0.5)
        for name in a4.DERIVED_SETS
        for test_set, accuracy in zip(a4.TEST_SETS, (77.0, 62.0, 48.0 if name == "D_R-noise" else 70.0), strict=True)
        for eps in (0.0, 0.25, 0.5)
    }
    given = results(evaluations=make_evaluations(values, ("row", "test_set", "eps")))  # type: ignore[arg-type]
    claims = a4.claims(given)
    assert [claim.judge()["value"] for claim in claims] == [15.0, -8.0, 15.0, 14.0]
    assert verdicts(claims) == ["held", "not held", "held", "held"]
    assert len(a4.table(given)) == 18
    assert len(a4.figure(given).get_axes()) == 1
    # The robust test set is made from images that the model has not seen, with the network that made the train set.
    recipes = [need.recipe for need in a4.needs(Pieces(study), a4.Settings())][:3]
    train, test, standard = (recipe.inputs["data"] for recipe in recipes)
    assert [recipe.parameters.split for recipe in recipes] == ["train", "test", "test"]  # type: ignore[union-attr]
    assert train.inputs == test.inputs
    assert train.parameters.splits == ("train",)  # type: ignore[union-attr]
    assert replace(train.parameters, splits=("test",)) == test.parameters  # type: ignore[call-arg, type-var]
    assert standard is test.inputs["data"]


def test_a6_compares_the_halves_of_the_training() -> None:
    curve = {"D_rand-robust": [10, 40, 30, 20, 10], "D_det-robust": [10, 10, 20, 40, 40]}
    histories = pd.DataFrame(
        [
            {"row": row, "seed": seed, "epoch": epoch, "probe": probe, "accuracy": value + jitter(seed)}
            for row, values in curve.items()
            for seed in SEEDS
            for epoch, value in enumerate(values, start=1)
            for probe in ("train", "test")
        ]
    )
    given = results(histories=histories)
    claims = a6.claims(given)
    # The middle epoch of five is in neither half.
    assert [claim.judge()["value"] for claim in claims] == [10.0, -30.0]
    assert verdicts(claims) == ["held", "not held"]
    table = a6.table(given).set_index(["row", "epochs"])["accuracy"]
    assert table["D_det-robust", "last"] == 40
    assert table["D_det-robust", "first half"] == 10


def test_a8_names_what_it_tests_on(study: Study) -> None:
    settings = a8.Settings(used=a8.Sample(split="validation"), fresh=a8.Sample())
    needs = a8.needs(Pieces(study), settings)
    assert {need.columns["test_set"] for need in needs} == {"D validation", "D test"}
    assert {need.recipe.parameters.split for need in needs} == {"validation", "test"}  # type: ignore[union-attr]
    values = {(row, test_set): 30.0 for row in ("D", *a8.DERIVED_SETS) for test_set in ("D validation", "D test")}
    values["D_det", "D test"] = 9.0
    rows = make_evaluations(values, ("row", "test_set"), label_shift=0, eps=0.0, classes=10)  # type: ignore[arg-type]
    assert verdicts(a8.claims(results(settings, rows))) == ["held", "not held"]
    full = read_study(REPOSITORY / "workflow" / "studies" / "not-bugs-cifar10.yaml")
    fresh = [
        need for need in a8.needs(Pieces(full), a8.Settings(fresh=a8.Sample(data="CIFAR-10.1"))) if need.row == "D"
    ]
    assert [need.columns["test_set"] for need in fresh[:2]] == ["D test", "CIFAR-10.1"]
    assert fresh[1].recipe.inputs["data"] is not fresh[0].recipe.inputs["data"]


def test_a11_judges_each_architecture_by_itself() -> None:
    settings = a11.Settings(architectures=("wide", "flat"))
    accuracy = {"D": (95.0, 5.0), "D_NR-images": (90.0, 1.0), "D_R-images": (85.0, 40.0)}
    values = {
        (row, architecture, eps): accuracy[row][eps > 0] if architecture == "wide" else 50.0 + (row == "D")
        for row in accuracy
        for architecture in settings.architectures
        for eps in (0.0, 0.25)
    }
    rows = make_evaluations(values, ("row", "architecture", "eps"))  # type: ignore[arg-type]
    claims = a11.claims(results(settings, rows))
    assert [claim.judge()["value"] for claim in claims] == [35.0, 4.0, 4.5, -1.0, 1.0, 4.1]
    assert verdicts(claims) == ["held", "held", "held", "not held", "held", "held"]


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
    networks = {("D",): 99.0, ("D_rand",): 46.0, ("D_det",): 40.0}
    evaluations = make_evaluations(networks, ("row",), eps=0.0, label_shift=0, classes=10)  # type: ignore[arg-type]
    given = results(x1.Settings(), evaluations, measurements=measurements)
    claims = x1.claims(given)
    assert [claim.judge()["value"] for claim in claims] == [20.0, 6.0, -2.0, -9.0, 0.21]
    assert verdicts(claims) == ["held", "held", "not held", "not held", "held"]
    table = x1.table(given).set_index(["row", "features"])["accuracy"]
    assert table["D_rand", x1.LINEAR] == 30
    assert table["D_rand", x1.NETWORK] == 46


def test_x2_learns_from_errors_alone(study: Study) -> None:
    settings = x2.Settings(source="stopped-early", training="downstream", architecture="narrow-cnn")
    needs = {need.row: need.recipe for need in x2.needs(Pieces(study), settings) if need.seed == 1}
    weak, learned = (needs[row].inputs["model"] for row in (x2.WEAK, x2.ERRORS))
    errors = learned.inputs["data"]
    assert errors.parameters.method == Misclassified(kind="errors")  # type: ignore[union-attr]
    assert errors.inputs["source"] is weak
    assert learned.parameters.architecture == weak.parameters.architecture  # type: ignore[union-attr]
    assert learned.parameters.seed != weak.parameters.seed  # type: ignore[union-attr]


def test_x5_counts_only_images_with_another_target() -> None:
    rows = [
        {"row": row, "seed": seed, "augmentation": augmentation, "images": 1000, "targeted": targeted}
        | {"reached": reached + seed - 1, "kept": kept + seed - 1}
        for row, targeted, reached, kept in (
            ("D_rand", 900, 891, 100),
            ("D_det", 1000, 800, 150),
            ("D_rand-robust", 900, 100, 700),
            ("D_det-robust", 1000, 600, 400),
            ("D", 0, 0, 990),
        )
        for augmentation in ("none", "augmented")
        for seed in SEEDS
    ]
    given = results(x5.Settings(), measurements=pd.DataFrame(rows))
    claims = x5.claims(given)
    assert [claim.judge()["value"] for claim in claims] == [9.0, 9.0, -10.0, -10.0, 20.0, -10.0]
    assert verdicts(claims) == ["held", "held", "not held", "not held", "held", "not held"]
    table = x5.table(given).set_index(["row", "augmentation"])
    assert table.loc[("D_rand", "none"), "success"] == 99
    assert np.isnan(table.loc[("D", "none"), "success"])
    assert table.loc[("D", "none"), "kept"] == 99
