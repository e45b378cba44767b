"""X6: which sets it asks for, and its table, figure and claims from known rows."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

import robustfeatures.experiments.a2_random_and_deterministic_targets as a2
import robustfeatures.experiments.x1_robust_feature_leakage as x1
import robustfeatures.experiments.x6_perturbation_radius as x6
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Need, Results
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.study import Study, read_study
from tests.conftest import REPOSITORY
from tests.experiments.known_rows import complete

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def study() -> Study:
    return replace(read_study(REPOSITORY / "workflow" / "studies" / "digits-full.yaml"), seeds=(0,))


def by_row(needs: list[Need]) -> dict[str, Need]:
    return {need.row: need for need in needs}


def test_x6_changes_the_radius_and_nothing_else(study: Study) -> None:
    needs = by_row(x6.needs(Pieces(study), x6.Settings(radii=(0.45, 0.9))))
    assert len(needs) == 1 + 2 * 3
    for name in ("D_rand", "D_det"):
        small, own = (needs[f"{name}, eps {radius}"].recipe.inputs["model"].inputs["data"] for radius in (0.45, 0.9))
        one, other = (recipe.parameters for recipe in (small, own))
        assert one.method.eps == 0.45  # type: ignore[union-attr]
        assert replace(one, method=replace(one.method, eps=0.9)) == other  # type: ignore[union-attr,type-var,call-arg]
        assert small.inputs["source"].digest == own.inputs["source"].digest
    distances = needs[x6.DISTANCES].recipe
    assert set(distances.inputs) == {"data"}
    assert distances.parameters.settings == {"norm": "l2", "radii": [0.45, 0.9]}  # type: ignore[union-attr]


def test_x6_shares_the_studys_own_radius_with_a2_and_x1(study: Study) -> None:
    needs = by_row(x6.needs(Pieces(study), x6.Settings(radii=(0.9,))))
    theirs = by_row(a2.needs(Pieces(study), a2.Settings()) + x1.needs(Pieces(study), x1.Settings()))
    for row, other in (
        ("D_rand, eps 0.9", "D_rand"),
        ("D_det, eps 0.9", "D_det"),
        (f"{x1.LINEAR}, eps 0.9", x1.LINEAR),
    ):
        assert needs[row].recipe.digest == theirs[other].recipe.digest
        assert needs[row].recipe.label == theirs[other].recipe.label


def test_x6_needs_targeted_attacks_in_one_norm(study: Study) -> None:
    settings = x6.Settings(radii=(0.9,))
    inverted = replace(study.derived["D_rand"], method=study.derived["D_R-images"].method)
    with pytest.raises(UserError, match=r"^derived\.D_rand\.method: X6 needs a targeted-attack$"):
        x6.needs(Pieces(replace(study, derived={**study.derived, "D_rand": inverted})), settings)
    own = study.derived["D_det"]
    linf = replace(own, method=replace(own.method, norm="linf"))  # type: ignore[call-arg]
    with pytest.raises(UserError, match=r"^derived\.D_det\.method\.norm: X6 needs the norm of D_rand, l2$"):
        x6.needs(Pieces(replace(study, derived={**study.derived, "D_det": linf})), settings)


# Per set and radius: accuracy on D, on the permuted labels, and of the robust linear features.
MEASURED = {
    ("D_rand", 0.5): (40.0, 9.0, 12.0),
    ("D_rand", 1.0): (60.0, 8.0, 50.0),
    ("D_det", 0.5): (6.0, 60.0, 2.0),
    ("D_det", 1.0): (40.0, 30.0, 3.0),
}


def known_results() -> Results:
    evaluations: list[dict[str, Any]] = []
    measurements: list[dict[str, Any]] = [
        {"row": x6.DISTANCES, "seed": 0, "radius": radius, "within": within, "images": 9}
        for radius, within in ((0.5, 0.02), (1.0, 0.4))
    ]
    for (derived, radius), (accuracy, permuted, leaked) in MEASURED.items():
        for seed in SEEDS:
            about = {"radius": radius, "seed": seed}
            for shift, value in enumerate((accuracy, permuted)):
                evaluations.append(
                    {**about, "derived": derived, "label_shift": shift, "chance": 10.0, "accuracy": value + 0.1 * seed}
                )
            linear = {"row": x1.LINEAR, "trained_on": derived, "accuracy": leaked / 100}
            measurements.append({**about, **linear})
            measurements.append({**about, **linear, "trained_on": "D", "accuracy": 0.9})
    return Results(
        complete(pd.DataFrame(evaluations)),
        pd.DataFrame(),
        pd.DataFrame(measurements),
        payloads={},
        settings=x6.Settings(radii=(0.5, 1.0)),
    )


def test_x6_puts_accuracies_beside_distances() -> None:
    table = x6.table(known_results()).set_index(["derived", "radius"])
    assert len(table) == 4
    assert table.loc[("D_det", 1.0), [x6.WITHIN, "accuracy", "permuted", "leaked"]].to_list() == pytest.approx(
        [40.0, 40.1, 30.1, 3.0]
    )
    assert set(table["seeds"]) == {3}
    drawn = x6.figure(known_results())
    drawn.savefig(io.BytesIO(), format="png", dpi=40)
    assert [axes.get_title() for axes in drawn.axes] == ["D_rand", "D_det"]


def test_x6_judges_each_radius_alone() -> None:
    claims = x6.claims(known_results())
    assert all(claim.control for claim in claims)
    assert [claim.setting for claim in claims] == ["eps 0.5"] * 4 + ["eps 1"] * 4
    verdicts = [str(claim.judge()["verdict"]) for claim in claims]
    # Half of the 30 points above chance that the network of D_rand has at 0.5, minus the 2 of the linear features.
    assert claims[3].values[0] == pytest.approx(30 / 2 - 2)
    # D_rand generalises, D_det does not, nor beats the permuted labels; little leaks. At 1, most leaks.
    assert verdicts == ["held", "contradicted", "contradicted", "held", "held", "held", "held", "contradicted"]
    assert claims[1].values[0] == pytest.approx(6 - 19)


def test_x6_compares_no_labels_where_none_is_learned() -> None:
    given = known_results()
    weak = (given.evaluations["derived"] == "D_det") & (given.evaluations["radius"] == 1.0)
    accuracy = given.evaluations["accuracy"].mask(weak, 18 - 6 * given.evaluations["label_shift"])
    claims = x6.claims(replace(given, evaluations=complete(given.evaluations.assign(accuracy=accuracy))))
    learned_more = [str(claim.judge()["verdict"]) for claim in claims if "has learned more" in claim.sentence]
    assert learned_more == ["contradicted", "not tested"]


def test_x6_asks_for_no_leak_where_nothing_is_learned() -> None:
    given = known_results()
    weak = (given.evaluations["derived"] == "D_rand") & (given.evaluations["radius"] == 0.5)
    accuracy = given.evaluations["accuracy"].mask(weak, 18.0)
    claims = x6.claims(replace(given, evaluations=complete(given.evaluations.assign(accuracy=accuracy))))
    leaks = [str(claim.judge()["verdict"]) for claim in claims if "leak" in claim.sentence]
    assert leaks == ["not tested", "contradicted"]
