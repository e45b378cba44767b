"""D1 and D2: their settings in studies, and their tables and claims from known rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from robustfeatures.errors import UserError
from robustfeatures.experiments import d1_feature_learning, d2_two_minima
from robustfeatures.experiments.experiment import Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.pipeline.study.study import read_study
from robustfeatures.pipeline.study.validation import validate
from robustfeatures.theory.settings import PatchConstants
from tests.conftest import REPOSITORY
from tests.experiments.known_rows import make_results
from tests.theory.settings import SMALL

SEEDS = (0, 1, 2)


def results(rows: list[dict[str, Any]], settings: object) -> Results:
    return make_results(settings, measurements=pd.DataFrame(rows))


def verdicts(claims: Sequence[Claim]) -> dict[tuple[str, str], object]:
    """The verdicts by quantity and setting."""
    judged = {(claim.quantity, claim.setting): claim.judge()["verdict"] for claim in claims}
    assert len(judged) == len(claims)
    return judged


@pytest.mark.parametrize("study", ["theory", "digits-full"])
@pytest.mark.parametrize(("identifier", "module"), [("D1", d1_feature_learning), ("D2", d2_two_minima)])
def test_the_constants_of_studies_meet_assumptions_2_3_and_b_3(study: str, identifier: str, module: Any) -> None:
    path = REPOSITORY / "workflow" / "studies" / f"{study}.yaml"
    asked = dict(read_study(path).experiments[identifier])
    settings = validate(module.Settings, asked)
    assert settings.settings
    for name, constants in settings.settings.items():
        assert isinstance(constants, PatchConstants)
        below = {condition: ratio for condition, ratio in constants.ratios().items() if ratio <= 1}
        assert not below, name


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("dimension", 4, r"settings\.small: .*dimension: 10 orthogonal features do not fit"),
        ("robust_patches", 99, r"settings\.small: .*robust_patches: must be fewer than patches"),
    ],
)
def test_constants_that_fit_no_data_are_refused(field: str, value: int, message: str) -> None:
    asked = dict(read_study(REPOSITORY / "workflow" / "studies" / "digits-full.yaml").experiments["D2"])
    (constants,) = asked["settings"].values()
    with pytest.raises(UserError, match=message):
        validate(
            d2_two_minima.Settings, {**asked, "settings": {"small": {**constants, "classes": 5, field: value}}}, ""
        )


def course(
    training: str, seed: int, step: int, of_robust: float, of_non_robust: float, **accuracies: float
) -> dict[str, Any]:
    """One row of D1. Accuracies that are not given are 1."""
    named = dict.fromkeys(d1_feature_learning.ACCURACIES, 1.0) | accuracies
    correlations = {"robust_correlation": of_robust, "non_robust_correlation": of_non_robust}
    return {"row": "small", "seed": seed, "training": training, "step": step, "loss": 0.1, **correlations, **named}


def courses() -> list[dict[str, Any]]:
    """Under attack non-robust features lead by most at step 10 + 10 seed. At the end only planted features fool."""
    rows = []
    for seed in SEEDS:
        change = 10 + 10 * seed
        for step in range(0, 60, 10):
            rows.append(course("standard", seed, step, 0.1, 0.1 + 0.01 * step, rotated=0.0, robust=0.0))
            late = max(step - change, 0)
            non_robust = 0.1 + 0.02 * min(step, change)
            attacked = {"planted": 0.0, "robust": 0.0} if late else {"rotated": 0.0, "pgd": 0.0, "robust": 0.0}
            rows.append(course("adversarial", seed, step, 0.1 + 0.02 * late, non_robust, **attacked))
    return rows


def test_the_phase_change_is_where_non_robust_features_lead_by_most() -> None:
    settings = d1_feature_learning.Settings(settings={"small": SMALL}, training_steps=50, every=10)
    found = results(courses(), settings)
    table = d1_feature_learning.table(found).set_index("training")
    assert table.loc["adversarial", "phase_change"] == 20
    assert table.loc["adversarial", "phase_change_std"] == 10
    assert table.loc["standard", "phase_change"] == 50
    assert table.loc["standard", "rotated"] == 0
    claims = d1_feature_learning.claims(found)
    assert {claim.setting for claim in claims if not claim.control} == {"small"}
    judged = verdicts(claims)
    assert {name for name, verdict in judged.items() if verdict != "held"} == {
        ("accuracy under all attacks together (%)", "small"),
        ("accuracy under one attack (%)", "small, planted"),
        # Standard training ends here where adversarial training stops learning them, or later.
        ("non-robust correlation at the last step, standard minus adversarial", "small"),
    }
    assert judged["accuracy under all attacks together (%)", "small"] == "contradicted"


def test_robust_features_must_grow_more_than_in_standard_training() -> None:
    """Alone, the growth after the step of the largest lead is never negative: noise would hold."""
    settings = d1_feature_learning.Settings(settings={"small": SMALL}, training_steps=50, every=10)

    def judged(rows: list[dict[str, Any]]) -> tuple[float, object]:
        claims = d1_feature_learning.claims(results(rows, settings))
        (claim,) = (each for each in claims if each.sentence.startswith("After the phase change robust features grow"))
        return float(np.mean(claim.values)), claim.judge()["verdict"]

    # 40, 30 and 20 steps of 0.02 are left after the change; standard training has no change before its last step.
    assert judged(courses()) == (pytest.approx(0.6), "held")
    turned = [
        {**row, "training": "standard" if row["training"] == "adversarial" else "adversarial"} for row in courses()
    ]
    assert judged(turned) == (pytest.approx(-0.6), "contradicted")
    # Robust features shrink by 0.01 a step, and non-robust ones by more: that is no growth.
    shrinking = [dict(row) for row in courses()]
    for row in shrinking:
        late = max(row["step"] - 10 - 10 * row["seed"], 0) if row["training"] == "adversarial" else 0
        row["robust_correlation"] -= 0.03 * late
        row["non_robust_correlation"] -= 0.05 * late
    assert judged(shrinking) == (pytest.approx(-0.3), "contradicted")


def test_robust_accuracy_at_the_phase_change_is_that_under_pgd() -> None:
    """As in the paper. Under all attacks together it is 0 in these rows, which would hold."""
    settings = d1_feature_learning.Settings(settings={"small": SMALL}, training_steps=50, every=10)
    claims = d1_feature_learning.claims(results([{**row, "pgd": 0.5} for row in courses()], settings))
    (claim,) = (each for each in claims if each.sentence.startswith("Until the phase change robust accuracy"))
    assert list(claim.values) == [-50.0] * 3
    assert claim.judge()["verdict"] == "contradicted"


def test_a_sentence_counts_once_in_all_settings() -> None:
    rows = [{**row, "row": name} for name in ("small", "large") for row in courses()]
    settings = d1_feature_learning.Settings(settings={"small": SMALL, "large": SMALL}, training_steps=50, every=10)
    claims = d1_feature_learning.claims(results(rows, settings))
    alone = d1_feature_learning.claims(
        results(courses(), d1_feature_learning.Settings(settings={"small": SMALL}, training_steps=50, every=10))
    )
    assert len(claims) == 2 * len(alone)
    assert {claim.sentence for claim in claims} == {claim.sentence for claim in alone}


ERRORS = ("error under rotated non-robust features, largest over the scales (%)", "small")
WITHSTANDS = ("minus the error under all attacks together, least over the scales (%)", "small")
PLANTED = ("minus the error under one attack, least over the scales (%)", "small, planted")


def minima(**robust: dict[float, float]) -> list[dict[str, Any]]:
    """Rows of D2 at the scales 0.1, 1 and 30. `robust` are accuracies of the robust minimum by attack and scale."""
    settled = {0.1: 1.0, 1.0: 1e-4, 30.0: 0.0}
    accuracies = set(d2_two_minima.ACCURACIES.values())
    rows = []
    for seed in SEEDS:
        for scale, risk in settled.items():
            shared = {"row": "small", "seed": seed, "scale": scale, "risk": risk, "noiseless_risk": risk}
            held = {attack: by_scale[scale] for attack, by_scale in robust.items()}
            rows.append(shared | dict.fromkeys(accuracies, 1.0) | held | {"minimum": "robust"})
            fooled = {"rotated": 0.0, "robust": 0.0}
            rows.append(shared | dict.fromkeys(accuracies, 1.0) | fooled | {"minimum": "non-robust"})
    return rows


D2_SETTINGS = d2_two_minima.Settings(settings={"small": SMALL}, scales=(0.1, 1.0, 30.0))


def test_the_propositions_hold_if_one_scale_with_a_small_risk_suffices() -> None:
    """As at the small radius, planted features win at a large scale, and the risk is large at scale 0.1."""
    by_scale = {0.1: 1.0, 1.0: 1.0, 30.0: 0.0}
    claims = d2_two_minima.claims(results(minima(planted=by_scale, robust=by_scale), D2_SETTINGS))
    assert len({claim.sentence for claim in claims if not claim.control}) == 4
    # Both risks have one quantity, so sentences tell the claims apart here.
    assert {claim.judge()["verdict"] for claim in claims} == {"held"}


def test_a_scale_with_a_large_risk_is_no_minimum() -> None:
    by_scale = {0.1: 1.0, 1.0: 0.5, 30.0: 0.0}
    claims = d2_two_minima.claims(results(minima(planted=by_scale, robust=by_scale), D2_SETTINGS))
    judged = {(claim.quantity, claim.setting): claim for claim in claims}
    assert list(judged[WITHSTANDS].values) == list(judged[PLANTED].values) == [-50.0] * 3
    assert judged[WITHSTANDS].judge()["verdict"] == "contradicted"
    assert judged[ERRORS].judge()["verdict"] == "held"


def test_without_a_small_risk_no_proposition_holds() -> None:
    """A minimum that was not reached has no errors, neither 0 nor 100 %."""
    rows = [{**row, "risk": 1.0} for row in minima()]
    on_risks, on_errors = [], []
    for claim in d2_two_minima.claims(results(rows, D2_SETTINGS)):
        (on_risks if "risk" in claim.sentence else on_errors).append(claim.judge()["verdict"])
    assert on_risks == ["contradicted"] * 2
    assert set(on_errors) == {"not tested"}


def test_the_table_of_minima_has_errors_in_percent() -> None:
    by_scale = {0.1: 1.0, 1.0: 0.75, 30.0: 0.0}
    found = results(minima(certified=by_scale), D2_SETTINGS)
    table = d2_two_minima.table(found).set_index(["minimum", "scale"])
    assert table.loc[("robust", 1.0), "not_excluded"] == 25
    assert table.loc[("robust", 1.0), "all_attacks"] == 0
    assert table.loc[("non-robust", 1.0), "all_attacks"] == 100
    _, *errors = d2_two_minima.figure(found).axes
    labels = [label for axes in errors[:2] for label in axes.get_xticklabels()]
    assert [label.get_text() for label in labels] == ["0.1", "1", "30"] * 2
    # Upright labels of narrow columns run into one another.
    assert {label.get_rotation() for label in labels} == {45.0}
