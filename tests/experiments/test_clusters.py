"""E1 and E2: what they ask for, and their tables and claims from known rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from robustfeatures.experiments import e1_feature_averaging as e1
from robustfeatures.experiments import e2_robust_radius as e2
from robustfeatures.experiments.experiment import Results
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Measurement
from robustfeatures.pipeline.study.study import read_study
from robustfeatures.theory import averaged_direction
from robustfeatures.theory.ideal_radii import OWN_CLASSES, ROBUST, SUMMED, TWO_CLASSES, ideal_radius
from tests.conftest import REPOSITORY
from tests.experiments.known_rows import make_results

SEEDS = (0, 1, 2)


def results(rows: list[dict[str, Any]], settings: object) -> Results:
    return make_results(settings, measurements=pd.DataFrame(rows))


def failing(claims: Any) -> set[str]:
    """The quantities of the claims that are not held."""
    return {claim.quantity for claim in claims if claim.judge()["verdict"] != "held"}


def test_names_are_those_of_the_measurement() -> None:
    """An experiment imports no torch while the study is unfolded, so it repeats the names of the rows."""
    for name in ("TRAINED", "ACCURATE", "ALL"):
        assert getattr(e2, name) == getattr(averaged_direction, name)


def test_e1_starts_as_the_slides_print() -> None:
    """w variance 1/d, b variance 1/d^2, rate 1/sqrt(d); the other starts are this project's own."""
    pieces = Pieces(read_study(REPOSITORY / "workflow" / "studies" / "theory.yaml"))
    settings = e1.Settings(training=e1.Training(dimension=400), printed_steps=(7,))
    asked = {}
    for need in e1.needs(pieces, settings):
        assert isinstance(need.recipe.parameters, Measurement)
        asked[need.columns["start"]] = need.recipe.parameters.settings
    printed = asked["initialisation as printed, 7 steps"]
    assert printed["deviation"] ** 2 == pytest.approx(1 / 400)
    assert printed["bias_deviation"] ** 2 == pytest.approx(1 / 400**2)
    assert printed["learning_rate"] == pytest.approx(1 / 400**0.5)
    assert printed["steps"] == 7
    for start in (e1.SMALL, e1.UNEQUAL):
        assert (asked[start]["deviation"], asked[start]["learning_rate"], asked[start]["steps"]) == (1e-5, 1e-3, 100)
        assert "bias_deviation" not in asked[start]
    assert asked[e1.UNEQUAL]["positive_share"] == 0.3


def neurons(own: float, other: float, *, first: float | None = None, positive: int = 2) -> list[dict[str, Any]]:
    """Four centres. Neurons hold lambda d = `own` of their own ones (`first` of the very first) and `other` of others.

    The cosines are those of weights without noise.
    """
    rows = []
    for seed in SEEDS:
        for network, count in ((e1.TWO_CLASSES, 6), (e1.K_CLASSES, 4)):
            for neuron in range(count):
                mine = [
                    neuron == centre if network == e1.K_CLASSES else (neuron >= 3) == (centre >= positive)
                    for centre in range(4)
                ]
                held = [own if each else other for each in mine]
                if first is not None and neuron == 0:
                    held[0] = first
                length = sum(each**2 for each in held) ** 0.5
                rows += [
                    {
                        "row": "networks",
                        "start": "start",
                        "seed": seed,
                        "network": network,
                        "neuron": neuron,
                        "centre": centre,
                        "own": mine[centre],
                        "cosine": held[centre] / length,
                        "coefficient": held[centre],
                        "accuracy": 1.0,
                    }
                    for centre in range(4)
                ]
    return rows


def test_e1_colours_each_start_by_its_largest_cosine() -> None:
    rows = [{**row, "start": "small"} for row in neurons(2.0, -0.1)]
    rows += [{**row, "start": "printed", "cosine": row["cosine"] / 5} for row in neurons(2.0, -0.1)]
    figure = e1.figure(results(rows, e1.Settings()))
    panels = {axes.get_title(): axes for axes in figure.axes[:4]}
    colours = {title: np.asarray(axes.images[0].get_array()) for title, axes in panels.items()}
    for network in (e1.TWO_CLASSES, e1.K_CLASSES):
        np.testing.assert_allclose(colours[f"{network}, small"], colours[f"{network}, printed"])
    assert colours["k-class, printed"].max() == pytest.approx(1.0)
    # The numbers remain cosines.
    length = (2.0**2 + 3 * 0.1**2) ** 0.5
    assert panels["k-class, printed"].texts[0].get_text() == f"{2 / length / 5:.2f}"
    assert figure.axes[-1].get_ylabel() == "cosine / largest |cosine| of the same start"


@pytest.mark.parametrize("positive", [1, 2])
def test_exact_averages_and_exact_diagonals_hold_every_claim(positive: int) -> None:
    found = results(neurons(2.0, -0.1, positive=positive), e1.Settings())
    table = e1.table(found).set_index(["start", "network", "centre_is"])
    for network in (e1.TWO_CLASSES, e1.K_CLASSES):
        assert table.loc[("start", network, "own"), "least_coefficient"] == 2.0
        assert table.loc[("start", network, "other"), "largest_coefficient"] == -0.1
    assert failing(e1.claims(found)) == set()


def test_a_neuron_that_prefers_one_centre_is_no_average() -> None:
    found = e1.claims(results(neurons(2.0, -0.1, first=5.0), e1.Settings()))
    assert failing(found) == {
        "2-class: least over largest lambda of a neuron's own side in percent, least over neurons"
    }
    # 100 x 2 / 5.
    assert next(list(each.values) for each in found if each.quantity in failing(found)) == pytest.approx([40, 40, 40])


def test_a_neuron_that_holds_nothing_of_its_side_has_the_share_zero() -> None:
    rows = pd.DataFrame(neurons(-1.0, -2.0))
    own = rows[(rows["network"] == e1.TWO_CLASSES) & rows["own"]].set_index(["seed", "neuron", "centre"])
    assert (e1.find_least_share(own["coefficient"]) == 0).all()


def test_the_theorem_bounds_the_other_side_from_above_alone() -> None:
    """The theorem has "lambda <= o(1)" for the other side, so negative values are a control; for clusters "= o(1)"."""
    found = failing(e1.claims(results(neurons(2.0, -0.5), e1.Settings())))
    assert found == {
        "2-class: a tenth of the least lambda d of the own side minus the largest |lambda d| of the other side",
        "k-class: a tenth of the least lambda d of the own cluster minus the largest |lambda d| of another one",
    }
    assert "2-class: a tenth of the least lambda d of the own side minus the largest of the other side" in failing(
        e1.claims(results(neurons(2.0, 0.5), e1.Settings()))
    )


RADII = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
# Up to which radius over sqrt(d) the averaged direction fails, in closed form with ten clusters.
WITHSTOOD = {e2.TRAINED: 1 / 10**0.5, e2.ACCURATE: 2 / 10**0.5}


def cliffs(clusters: tuple[int, ...], dimensions: tuple[int, ...]) -> list[dict[str, Any]]:
    """Rows of E2 with the radii of the closed forms."""
    names = (TWO_CLASSES, OWN_CLASSES, SUMMED, ROBUST)
    rows: list[dict[str, Any]] = []
    for seed in SEEDS:
        for sides, positive in ((e2.EQUAL, 5), (e2.UNEQUAL, 3)):
            for name in names:
                cliff = ideal_radius(name, 10, 1, positive)
                for radius in RADII:
                    curve = {"network": name, "attack": "least perturbation", "relative_radius": radius}
                    at = {"row": "curves", "seed": seed, "sides": sides}
                    rows.append({**at, **curve, "accuracy": float(radius < cliff)})
                    # PGD that finds nothing, which no claim is about.
                    rows.append({**at, **curve, "attack": "PGD", "accuracy": 1.0})
            for biases in (e2.TRAINED, e2.ACCURATE, e2.ALL):
                for radius in RADII:
                    constant = (10 - positive) / 10
                    accuracy = constant if biases == e2.ALL else float(radius < WITHSTOOD[biases])
                    at = {"row": e2.DIRECTION, "seed": seed, "sides": sides, "biases": biases}
                    rows.append({**at, "relative_radius": radius, "accuracy": accuracy})
        for name in names:
            for k in clusters:
                for d in dimensions:
                    relative = ideal_radius(name, k, d) / d**0.5
                    at = {"clusters": k, "dimension": d, "network": name, "accuracy": 1.0}
                    rows.append({"row": f"d = {d}", "seed": seed, **at, "relative_cliff": relative, "ideal": relative})
    return rows


def test_cliffs_as_in_closed_form_grow_as_the_closed_forms_do() -> None:
    """Ratios of the ideal radii: sqrt(k/2) and sqrt(k)/2 are of the order of sqrt(k), sqrt(2k/(k+2)) is not.

    A constant answer withstands every radius, so the theorem's "for any choice of bias" fails without a condition.
    """
    clusters, dimensions = (4, 8, 16, 64), (100, 400)
    settings = e2.Settings(sweep_clusters=clusters, sweep_dimensions=dimensions)
    found = results(cliffs(clusters, dimensions), settings)
    table = e2.table(found).set_index(["clusters", "dimension", "network"])
    assert table.loc[(16, 100, OWN_CLASSES), "ratio"] == pytest.approx(8**0.5, rel=1e-4)
    assert table.loc[(16, 100, ROBUST), "ratio"] == pytest.approx(2, rel=1e-4)
    assert table.loc[(64, 400, SUMMED), "ratio"] == pytest.approx((128 / 66) ** 0.5, rel=1e-4)
    judged = e2.claims(found)
    assert failing(judged) == {
        f"10 minus the distance of the exponent of k in the ratio of cliffs from 1/2, in hundredths, {SUMMED}",
        "2-class: 5 minus the largest accuracy over all biases under the averaged direction at radius 0.8 sqrt(d)",
    }
    exponents = [claim.values[0] for claim in judged if OWN_CLASSES in claim.quantity and "exponent" in claim.quantity]
    assert exponents == pytest.approx([10.0])
    constant = [list(claim.values) for claim in judged if "over all biases" in claim.quantity]
    assert constant == [pytest.approx([5 - 50] * 3), pytest.approx([5 - 70] * 3)]


def test_advantages_are_means_over_radii_under_the_least_perturbation() -> None:
    """Each network withstands the radii below its closed form, and the 2-class network those below its own."""
    clusters, dimensions = (4, 8), (100,)
    rows = pd.DataFrame(cliffs(clusters, dimensions))
    # With unequal sides the 2-class network withstands one radius more, so that the two sizes of sides differ.
    lucky = (rows["network"] == TWO_CLASSES) & (rows["sides"] == e2.UNEQUAL) & (rows["relative_radius"] == 0.4)
    rows.loc[lucky, "accuracy"] = 1.0
    settings = e2.Settings(sweep_clusters=clusters, sweep_dimensions=dimensions)
    found = {
        (claim.quantity, claim.setting.split(",")[0]): list(claim.values)
        for claim in e2.claims(make_results(settings, measurements=rows))
        if "mean over radii" in claim.quantity
    }

    def withstood(name: str, positive: int) -> int:
        return sum(radius < ideal_radius(name, 10, 1, positive) for radius in RADII)

    expected = {}
    for sides, positive, luck in ((e2.EQUAL, 5, 0), (e2.UNEQUAL, 3, 1)):
        for name in (OWN_CLASSES, SUMMED, ROBUST):
            more = withstood(name, positive) - withstood(TWO_CLASSES, positive) - luck
            quantity = f"robust accuracy, mean over radii, {name} minus 2-class"
            expected[quantity, sides] = pytest.approx([100 * more / len(RADII)] * len(SEEDS))
    assert found == expected


def test_other_biases_are_not_judged_at_radii_that_are_too_small() -> None:
    clusters, dimensions = (4, 8), (100,)
    short = [row for row in cliffs(clusters, dimensions) if row.get("relative_radius", 0.0) < 0.79]
    judged = e2.claims(results(short, e2.Settings(sweep_clusters=clusters, sweep_dimensions=dimensions)))
    biased = [claim.judge()["verdict"] for claim in judged if claim.sentence.startswith("For any choice of bias")]
    assert biased == ["not tested"] * 4


def test_each_sentence_has_a_case_for_each_size_of_sides() -> None:
    clusters, dimensions = (4, 8), (100,)
    settings = e2.Settings(sweep_clusters=clusters, sweep_dimensions=dimensions)
    judged = e2.claims(results(cliffs(clusters, dimensions), settings))
    assert len({(claim.sentence, claim.setting) for claim in judged}) == len(judged)
    # Three and a control on averaged features, and two on each of two networks.
    assert len({claim.sentence for claim in judged}) == 8
    of_sides = [claim.setting for claim in judged if "exponent" not in claim.quantity]
    assert sum(setting.startswith(e2.EQUAL) for setting in of_sides) == 7
    assert sum(setting.startswith(e2.UNEQUAL) for setting in of_sides) == 7


def test_the_figure_shows_both_sizes_of_sides() -> None:
    clusters, dimensions = (4, 8), (100,)
    settings = e2.Settings(sweep_clusters=clusters, sweep_dimensions=dimensions)
    figure = e2.figure(results(cliffs(clusters, dimensions), settings))
    assert [axes.get_title() for axes in figure.axes[:2]] == [
        "equal sides: k = 5 + 5, d = 3072",
        "unequal sides: k = 3 + 7, d = 3072",
    ]
