"""A5 and X3: their needs, and their tables and claims from known rows."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from pydantic import TypeAdapter, ValidationError

from robustfeatures.attacks.evaluating.settings import PGD, Evaluation, Noise
from robustfeatures.data.settings import Subset
from robustfeatures.errors import UserError
from robustfeatures.experiments import a1_robust_and_nonrobust_sets as a1
from robustfeatures.experiments import a5_attack_steps as a5
from robustfeatures.experiments import c3_half_half_training as c3
from robustfeatures.experiments import d3_feature_learning_accuracy as d3
from robustfeatures.experiments import x3_autoattack as x3
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.study import read_study
from robustfeatures.pipeline.study.validation import validate
from tests.conftest import REPOSITORY
from tests.experiments.known_rows import make_results


@pytest.fixture
def pieces() -> Pieces:
    return Pieces(read_study(REPOSITORY / "workflow" / "studies" / "smoke.yaml"))


def test_a5_tries_step_sizes_that_reach_as_far_with_any_number_of_steps() -> None:
    settings = a5.Settings()
    assert settings.pgd(1).relative_step_sizes == (1.0,)
    assert settings.pgd(10).relative_step_sizes == (0.25, 1.0)
    assert settings.pgd(2500).relative_step_sizes == (0.001, 0.004, 0.016)


def test_a5_needs_the_studys_radius(pieces: Pieces) -> None:
    needs = a5.needs(pieces, a5.Settings(starts=("noise",)))
    assert [need.columns["steps"] for need in needs] == [0, *a5.Settings().steps, 1000]
    with pytest.raises(UserError, match=r"^robustness\.eps: 0\.3 is missing"):
        a5.needs(pieces, a5.Settings(eps=0.3))


def test_a5_needs_a_number_of_steps_to_compare_the_largest_with() -> None:
    with pytest.raises(ValidationError, match="needs a number that is at most half of the largest, 50"):
        TypeAdapter(a5.Settings).validate_json('{"steps": [40, 50]}')


def test_a5_judges_the_least_over_attacks() -> None:
    accuracy = {(a5.STUDY, 0): 50.0, (a5.SWEEP, 1): 70.0, (a5.SWEEP, 50): 49.5, (a5.SWEEP, 100): 49.0}
    accuracy[a5.SEARCH, 1000] = 48.5
    rows = pd.DataFrame(
        [
            {"row": "D_R-noise", "under": under, "seed": seed, "steps": steps, "eps": 0.25, "accuracy": value + seed}
            for (under, steps), value in accuracy.items()
            for seed in (0, 1)
        ]
    )
    settings = a5.Settings(starts=("noise",), steps=(1, 50, 100))
    given = make_results(settings, rows)
    dropped, plateau, search = a5.claims(given)
    assert list(dropped.values) == [-1.5, -1.5]
    assert list(plateau.values) == [-0.5, -0.5]
    assert list(search.values) == [-0.5, -0.5]
    # An attack by CW that finds less reaches another plateau.
    weak = rows.assign(accuracy=rows["accuracy"] + 10.0 * (rows["under"] == a5.SEARCH))
    assert a5.claims(make_results(settings, weak))[2].judge()["verdict"] == "contradicted"
    assert [claim.judge()["verdict"] for claim in (dropped, plateau, search)] == ["held"] * 3
    assert list(a5.table(given)["accuracy"]) == [50.5, 70.5, 50.0, 49.5, 49.0]


def test_a5_judges_each_start_by_its_own_rows(pieces: Pieces) -> None:
    both = a5.needs(pieces, a5.Settings())
    sets = {start: a5.needs(pieces, a5.Settings(starts=(start,))) for start in ("images", "noise")}
    models = {name: {need.recipe.inputs["model"] for need in needs} for name, needs in sets.items()}
    assert {need.row for need in both} == {"D_R-images", "D_R-noise"}
    assert {need.recipe.inputs["model"] for need in both} == models["images"] | models["noise"]
    assert not models["images"] & models["noise"]
    rows = pd.DataFrame(
        [
            {"row": row, "under": under, "seed": 0, "steps": steps, "eps": 0.25, "accuracy": value}
            for row, drop in (("D_R-images", 0.0), ("D_R-noise", 5.0))
            for under, steps, value in ((a5.STUDY, 0, 50.0), (a5.SWEEP, 50, 50.0), (a5.SWEEP, 100, 50.0 - drop))
        ]
        + [
            {"row": row, "under": a5.SEARCH, "seed": 0, "steps": 1000, "eps": 0.25, "accuracy": 50.0}
            for row in ("D_R-images", "D_R-noise")
        ]
    )
    claims = a5.claims(make_results(a5.Settings(steps=(1, 50, 100)), rows))
    assert [(claim.setting, list(claim.values)) for claim in claims] == [
        *(("from images", [value]) for value in (0.0, 0.0, 0.0)),
        *(("from noise", [value]) for value in (-5.0, -5.0, -5.0)),
    ]


def test_x3_asks_for_the_studys_attacks_first_and_for_none_twice(pieces: Pieces) -> None:
    own = pieces.robustness.attacks
    asked = x3.needs(pieces, x3.Settings())[0].recipe.parameters
    assert isinstance(asked, Evaluation)
    assert asked.attacks == (*own, x3.STANDARD_VERSION)
    robustness = replace(pieces.robustness, attacks=(*own, x3.STANDARD_VERSION))
    with_it = Pieces(replace(pieces.study, robustness=robustness))
    again = x3.needs(with_it, x3.Settings())[0].recipe.parameters
    assert isinstance(again, Evaluation)
    assert again.attacks == (*own, x3.STANDARD_VERSION)
    # Also if another attack of the study comes after it.
    robustness = replace(pieces.robustness, attacks=(x3.STANDARD_VERSION, *own))
    last = x3.needs(Pieces(replace(pieces.study, robustness=robustness)), x3.Settings())[0].recipe.parameters
    assert isinstance(last, Evaluation)
    assert last.attacks == (*own, x3.STANDARD_VERSION)


def test_x3_attacks_the_networks_of_a1_with_the_same_starts(pieces: Pieces) -> None:
    asked = x3.needs(pieces, x3.Settings(starts=("images",)))
    theirs = a1.needs(pieces, a1.Settings(starts=("images",)))
    assert [need.row for need in asked if need.seed == 0] == ["standard", "adversarial", "D_NR-images", "D_R-images"]
    assert [need.recipe.inputs["model"] for need in asked] == [need.recipe.inputs["model"] for need in theirs]


def test_x3_attacks_the_networks_of_c3_at_the_radius_of_their_training() -> None:
    study = read_study(REPOSITORY / "workflow" / "studies" / "digits-full.yaml")
    pieces = Pieces(replace(study, seeds=(0,)))
    asked = x3.needs(pieces, x3.Settings(of="C3", images=50))
    given = {name: value for name, value in study.experiments["C3"].items() if name != "seeds"}
    theirs = c3.needs(pieces, validate(c3.Settings, given))
    assert len(asked) == len(theirs) == 12
    for mine, own in zip(asked, theirs, strict=True):
        assert mine.recipe.inputs["model"] == own.recipe.inputs["model"]
        attacked, evaluated = mine.recipe.parameters, own.recipe.parameters
        assert isinstance(attacked, Evaluation)
        assert isinstance(evaluated, Evaluation)
        assert (attacked.norm, attacked.eps) == (evaluated.norm, evaluated.eps)
        assert attacked.attacks == (*evaluated.attacks, x3.STANDARD_VERSION)
        assert mine.row == f"{own.row}, {own.columns['norm']}"
    # A row has one network at each radius.
    keys = [(need.row, need.recipe.parameters.eps) for need in asked if isinstance(need.recipe.parameters, Evaluation)]
    assert len(set(keys)) == len(keys)


def test_x3_attacks_the_learners_of_d3_at_the_radius_of_its_table() -> None:
    study = read_study(REPOSITORY / "workflow" / "studies" / "digits-full.yaml")
    pieces = Pieces(replace(study, seeds=(0, 1)))
    asked = x3.needs(pieces, x3.Settings(of="D3"))
    theirs = [
        need
        for need in d3.needs(pieces, study.experiment_settings("D3", d3.Settings))
        if isinstance(need.recipe.parameters, Evaluation) and len(need.recipe.parameters.eps) > 1
    ]
    assert len(asked) == len(theirs) == 4
    for mine, own in zip(asked, theirs, strict=True):
        assert (mine.row, mine.seed) == (own.row, own.seed)
        assert mine.recipe.inputs == own.recipe.inputs
        assert mine.recipe.parameters == replace(
            own.recipe.parameters, attacks=(*pieces.robustness.attacks, x3.STANDARD_VERSION)
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (x3.Settings(of="C3"), r"^experiments\.X3\.of: the study has no experiment C3$"),
        (x3.Settings(of="D3"), r"^experiments\.X3\.of: the study has no experiment D3$"),
        (x3.Settings(of="D3", eps=(0.5,)), r"^experiments\.X3\.eps: is for the networks of A1 alone$"),
        (x3.Settings(of="C3", eps=(0.5,)), r"^experiments\.X3\.eps: is for the networks of A1 alone$"),
        (x3.Settings(of="C3", starts=("noise",)), r"^experiments\.X3\.starts: is for the networks of A1 alone$"),
        (
            x3.Settings(of="C3", starts=("images", "noise")),
            r"^experiments\.X3\.starts: is for the networks of A1 alone$",
        ),
    ],
)
def test_x3_refuses_what_c3_and_d3_have_no_use_for(pieces: Pieces, settings: x3.Settings, message: str) -> None:
    with pytest.raises(UserError, match=message):
        x3.needs(pieces, settings)


def test_x3_draws_as_many_test_images_as_it_says(pieces: Pieces) -> None:
    whole, few = (x3.needs(pieces, settings)[0].recipe for settings in (x3.Settings(), x3.Settings(images=50)))
    assert whole.inputs["data"] is pieces.data()
    assert few.inputs["model"] is whole.inputs["model"]
    drawn = Subset(kind="subset", split="test", samples=50)
    assert few.inputs["data"].parameters == replace(pieces.data().parameters, operations=(drawn,))


def test_x3_pairs_what_the_studys_attacks_leave_with_what_is_left_after_autoattack() -> None:
    single = pd.DataFrame(
        [
            {
                "row": "standard",
                "seed": seed,
                "eps": eps,
                "attack": attack,
                "accuracy": accuracy,
                "attacked": f"of-{seed}",
            }
            for seed in (0, 1)
            for eps, left in ((0.25, (60.0, 59.0, 58.0)), (0.5, (30.0, 30.0, 27.0)))
            for attack, accuracy in zip(("pgd", "noise", x3.STANDARD_VERSION.name), left, strict=True)
        ]
    )
    together = single[single["attack"] == x3.STANDARD_VERSION.name].drop(columns="attack")
    clean = together.drop_duplicates("seed").assign(eps=0.0, accuracy=90.0)
    given = make_results(x3.Settings(), pd.concat([clean, together]), attacks=single)
    table = x3.table(given)
    assert list(table["eps"]) == [0.25, 0.5]
    assert list(table["before"]) == [59.0, 30.0]
    assert list(table["after"]) == [58.0, 27.0]
    assert list(table["lowered"]) == [1.0, 3.0]
    claims = x3.claims(given)
    assert {claim.setting: (list(claim.values), claim.judge()["verdict"]) for claim in claims} == {
        "standard, eps 0.25": ([-1.0, -1.0], "held"),
        "standard, eps 0.5": ([-3.0, -3.0], "contradicted"),
    }
    assert {claim.sentence for claim in claims} == {"AutoAttack lowers no robust accuracy of A1 by more than 2 points"}
    # In C3 another network has the second radius. Its clean accuracy has the same row, and here it is chance.
    second = pd.concat([together, clean.assign(accuracy=10.0)]).query("eps != 0.25").assign(attacked="of-second-radius")
    attacks = single.assign(attacked=single["attacked"].mask(single["eps"] == 0.5, "of-second-radius"))
    of_c3 = make_results(
        x3.Settings(of="C3"), pd.concat([clean, together.query("eps == 0.25"), second]), attacks=attacks
    )
    pd.testing.assert_frame_equal(x3.table(of_c3), table)
    claims = x3.claims(of_c3)
    assert claims[0].sentence == "AutoAttack lowers no robust accuracy of C3 by more than 2 points"
    assert [claim.judge()["verdict"] for claim in claims] == ["held", "not tested"]


def test_x3_names_the_attacks_that_follow() -> None:
    following = (PGD(kind="pgd", steps=7, relative_step_sizes=(0.5,)), Noise(kind="noise", draws=3))
    rows = [
        {"row": "standard", "seed": 0, "eps": 0.25, "attack": attack, "accuracy": accuracy, "attacked": "it"}
        for attack, accuracy in (("autoattack", 60.0), (following[0].name, 59.0), (following[1].name, 58.0))
    ]
    together = pd.DataFrame(rows[-1:]).drop(columns="attack")
    given = make_results(x3.Settings(attacks=following), together, attacks=pd.DataFrame(rows))
    (claim,) = x3.claims(given)
    assert claim.sentence == "PGD and random noise lower no robust accuracy of A1 by more than 2 points"
    assert claim.quantity == "robust accuracy: with PGD and random noise minus without"
    assert list(claim.values) == [-2.0]
    (legend,) = [legend for axes in x3.figure(given).axes if (legend := axes.get_legend())] or x3.figure(given).legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "eps 0.25, the study's attacks",
        "eps 0.25, and PGD and random noise",
    ]
