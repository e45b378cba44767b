"""D1, D2, E1 and E2: their settings in studies, and their tables and claims from known rows."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from robustfeatures.experiments import (
    d1_feature_learning,
    d2_two_minima,
    e1_feature_averaging,
    e2_robust_radius,
)
from robustfeatures.experiments.experiment import Results
from robustfeatures.pipeline.study.study import read_study
from robustfeatures.pipeline.study.validation import validate
from robustfeatures.theory.ideal_radii import OWN_CLASSES, ROBUST, SUMMED, TWO_CLASSES, ideal_radius
from robustfeatures.theory.settings import PatchConstants
from tests.conftest import REPOSITORY
from tests.theory.settings import SMALL

SEEDS = (0, 1, 2)


def results(rows: list[dict[str, Any]], settings: object) -> Results:
    return Results(
        evaluations=pd.DataFrame(),
        histories=pd.DataFrame(),
        measurements=pd.DataFrame(rows),
        payloads={},
        settings=settings,
    )


def verdicts(claims: Any) -> dict[str, object]:
    return {claim.quantity: claim.judge()["verdict"] for claim in claims}


@pytest.mark.parametrize("study", ["theory", "digits-full"])
@pytest.mark.parametrize(("identifier", "module"), [("D1", d1_feature_learning), ("D2", d2_two_minima)])
def test_the_constants_of_studies_meet_assumptions_2_3_and_b_3(study: str, identifier: str, module: Any) -> None:
    path = REPOSITORY / "workflow" / "studies" / f"{study}.yaml"
    asked = dict(read_study(path).experiments[identifier])
    settings = validate(module.Settings, asked, "")
    assert settings.settings
    for name, constants in settings.settings.items():
        assert isinstance(constants, PatchConstants)
        below = {condition: ratio for condition, ratio in constants.ratios().items() if ratio <= 1}
        assert not below, name


def course(
    training: str, seed: int, step: int, robust: float, non_robust: float, **accuracies: float
) -> dict[str, Any]:
    """One row of D1; accuracies that are not named are 1."""
    named = dict.fromkeys(d1_feature_learning.ACCURACIES, 1.0) | accuracies
    correlations = {"robust_correlation": robust, "non_robust_correlation": non_robust}
    return {"row": "small", "seed": seed, "training": training, "step": step, "loss": 0.1, **correlations, **named}


def courses() -> list[dict[str, Any]]:
    """Non-robust features lead by most at step 10 + 10 seed under attack; only planted features fool the end."""
    rows = []
    for seed in SEEDS:
        change = 10 + 10 * seed
        for step in range(0, 60, 10):
            rows.append(course("standard", seed, step, 0.1, 0.1 + 0.01 * step, replaced=0.0))
            late = max(step - change, 0)
            non_robust = 0.1 + 0.02 * min(step, change)
            attacked = {"planted": 0.0, "pgd": 0.0} if late else {"replaced": 0.0}
            rows.append(course("adversarial", seed, step, 0.1 + 0.02 * late, non_robust, **attacked))
    return rows


def test_the_phase_change_is_where_non_robust_features_lead_by_most() -> None:
    settings = d1_feature_learning.Settings(settings={"small": SMALL}, training_steps=50, every=10)
    found = results(courses(), settings)
    table = d1_feature_learning.table(found).set_index("training")
    assert table.loc["adversarial", "phase_change"] == 20
    assert table.loc["adversarial", "phase_change_std"] == 10
    assert table.loc["standard", "phase_change"] == 50
    assert table.loc["standard", "replaced"] == 0
    judged = verdicts(d1_feature_learning.claims(found))
    assert {quantity for quantity, verdict in judged.items() if verdict == "not held"} == {
        "small: accuracy under PGD, minus 95",
        "small: accuracy under planted robust features, minus 95",
    }
    assert set(judged.values()) == {"held", "not held"}


def test_propositions_are_judged_at_the_largest_scale() -> None:
    rows = [
        {"row": "small", "seed": seed, "minimum": minimum, "scale": scale, "risk": 1e-4 / scale, "noiseless_risk": 0.0}
        | dict.fromkeys(d2_two_minima.ERRORS, 1.0)
        | ({"replaced": 0.0} if minimum == "non-robust" and scale > 1 else {})
        for seed in SEEDS
        for minimum in ("non-robust", "robust")
        for scale in (1.0, 30.0)
    ]
    settings = d2_two_minima.Settings(settings={"small": SMALL}, scales=(1.0, 30.0))
    judged = verdicts(d2_two_minima.claims(results(rows, settings)))
    assert set(judged.values()) == {"held"}
    assert len(judged) == 7
    for row in rows:
        row["replaced"] = 1.0
    judged = verdicts(d2_two_minima.claims(results(rows, settings)))
    assert [name for name, verdict in judged.items() if verdict == "not held"] == [
        "small, non-robust minimum: error under the replacement, minus 95"
    ]


def cosines(own: float, other: float) -> list[dict[str, Any]]:
    """Four centres; coefficients are the cosines, so both theorems are judged on these two numbers."""
    rows = []
    for seed in SEEDS:
        for network, neurons in (("2-class", 6), ("k-class", 4)):
            for neuron in range(neurons):
                for centre in range(4):
                    mine = neuron == centre if network == "k-class" else (neuron >= 3) == (centre >= 2)
                    value = own if mine else other
                    rows.append(
                        {"row": "networks", "seed": seed, "network": network, "neuron": neuron, "centre": centre}
                        | {"cosine": value, "coefficient": value, "accuracy": 1.0}
                    )
    return rows


def test_own_and_other_centres_are_told_apart() -> None:
    settings = e1_feature_averaging.Settings()
    found = results(cosines(0.5, -0.02), settings)
    table = e1_feature_averaging.table(found).set_index(["network", "centre_is"])
    for network in ("2-class", "k-class"):
        assert table.loc[(network, "own"), "cosine"] == 0.5
        assert table.loc[(network, "own"), "least_cosine"] == 0.5
        assert table.loc[(network, "other"), "largest_cosine"] == -0.02
    assert set(verdicts(e1_feature_averaging.claims(found)).values()) == {"held"}
    mixed = verdicts(e1_feature_averaging.claims(results(cosines(0.5, -0.2), settings)))
    assert sorted(name for name, verdict in mixed.items() if verdict == "not held") == [
        "2-class: 10 minus the largest |lambda| of the other side in percent of the least of the own",
        "k-class: 10 minus the largest |lambda| of another cluster in percent of the least of the own",
    ]


def test_cliffs_as_in_closed_form_grow_as_the_closed_forms_do() -> None:
    """Ratios of the ideal radii: sqrt(k/2) and sqrt(k)/2 are of the order of sqrt(k), sqrt(2k/(k+2)) is not."""
    names = (TWO_CLASSES, OWN_CLASSES, SUMMED, ROBUST)
    clusters, dimensions = (4, 8, 16, 64), (100, 400)
    settings = e2_robust_radius.Settings(sweep_clusters=clusters, sweep_dimensions=dimensions)
    rows: list[dict[str, Any]] = []
    for seed in SEEDS:
        for name in names:
            cliff = ideal_radius(name, 10, 1)
            for radius in (0.0, 0.3, 0.4, 0.5, 0.6, 0.7):
                curve = {"network": name, "attack": "least perturbation", "relative_radius": radius}
                rows.append({"row": "curves", "seed": seed, **curve, "accuracy": float(radius < cliff)})
            for k in clusters:
                for d in dimensions:
                    relative = ideal_radius(name, k, d) / d**0.5
                    at = {"clusters": k, "dimension": d, "network": name, "accuracy": 1.0}
                    rows.append({"row": f"d = {d}", "seed": seed, **at, "relative_cliff": relative, "ideal": relative})
    found = results(rows, settings)
    table = e2_robust_radius.table(found).set_index(["clusters", "dimension", "network"])
    assert table.loc[(16, 100, OWN_CLASSES), "ratio"] == pytest.approx(8**0.5, rel=1e-4)
    assert table.loc[(16, 100, ROBUST), "ratio"] == pytest.approx(2, rel=1e-4)
    assert table.loc[(64, 400, SUMMED), "ratio"] == pytest.approx((128 / 66) ** 0.5, rel=1e-4)
    judged = e2_robust_radius.claims(found)
    assert [claim.quantity for claim in judged if claim.judge()["verdict"] == "not held"] == [
        f"10 minus the distance of the exponent of k in the ratio of cliffs from 1/2, in hundredths, {SUMMED}"
    ]
    exponents = [claim.values[0] for claim in judged if OWN_CLASSES in claim.quantity and "exponent" in claim.quantity]
    assert exponents == pytest.approx([10.0])
