"""B1, B4 and B5: their tables and claims from known histories and evaluations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from robustfeatures.errors import UserError
from robustfeatures.experiments import b1_two_pathways as b1
from robustfeatures.experiments import b4_transfer_while_training as b4
from robustfeatures.experiments import b5_cross_set_transfer as b5
from robustfeatures.experiments.experiment import Results
from robustfeatures.experiments.shared.feature_shares import margin_of_combination
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.report.building import read_published
from robustfeatures.pipeline.study.study import Study, read_study
from robustfeatures.training.settings import Model
from tests.experiments.two_pathways_rows import SEEDS, STUDIES, results, verdicts


def ends_of_pathway_2(given: Results) -> list[tuple[float, float]]:
    """The published values that the second panel of B1 marks."""
    lines = [line for line in b1.figure(given).axes[1].lines if line.get_marker() == "D"]
    return [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in lines]


def curves() -> pd.DataFrame:
    """40 epochs. Robust accuracy of pathway 1 declines after 10, sharply at 12; that of pathway 2 levels off at 16."""
    epochs = np.arange(1, 41)
    up, down = np.minimum(epochs, 10) * 6.0, np.maximum(epochs - 10, 0) * 0.5 + np.clip(epochs - 11, 0, 2) * 15.0
    lines: dict[tuple[str, str], Any] = {
        ("pathway 1", "robust"): up - down,
        ("pathway 1", "non-robust"): 2 * down,
        ("pathway 1", "train"): np.full(40, 99.0),
        ("pathway 1", "validation"): np.full(40, 97.0),
        ("pathway 1", b1.CORRELATION): np.minimum(epochs, 11) * 2.0,
        ("pathway 2", "robust"): np.minimum(epochs, 16) * 5.0,
        ("pathway 2", "non-robust"): np.full(40, 3.0),
        ("pathway 2", "train"): np.full(40, 99.0),
        ("pathway 2", "validation"): np.full(40, 80.0),
        ("pathway 2", b1.CORRELATION): np.minimum(epochs, 30) * 2.0,
    }
    frames = [
        pd.DataFrame({"epoch": epochs, "accuracy": values + 0.1 * seed, "images": 300}).assign(
            row=row, pathway=row, variant="", probe=probe, seed=seed
        )
        for (row, probe), values in lines.items()
        for seed in SEEDS
    ]
    return pd.concat(frames, ignore_index=True)


def measured(histories: pd.DataFrame, *evaluations: pd.DataFrame) -> Results:
    """B1 on these curves, without smoothing, and on pathway 2 of the study's own data and of others."""
    tested = pd.concat([of_pathway_2(80.0, 3.0), *evaluations], ignore_index=True)
    return results(b1.Settings(pathway_1="a", pathway_2="b", window=1), histories, tested)


def test_b1_measures_where_curves_turn() -> None:
    given = measured(curves())
    assert ends_of_pathway_2(given) == []
    printed = pd.DataFrame([{"row": "pathway 2", "probe": "validation", "eps": 0, "accuracy": 81.0}])
    assert ends_of_pathway_2(replace(given, published=printed, comparable=True)) == [(40, 81.0)]
    table = b1.table(given).set_index(["row", "probe"])["turning_epoch"]
    assert table["pathway 1", "robust"] == 12
    assert table["pathway 1", b1.CORRELATION] == 11
    assert table["pathway 2", "robust"] == 16
    assert table["pathway 2", b1.CORRELATION] == 30
    assert table.isna().sum() == 6
    *pathways, with_fall, with_level = b1.measured_claims(given)
    assert verdicts(pathways) == ["held"] * 8
    fitted = pathways[3]
    assert "close to 100 %" in fitted.sentence
    assert list(fitted.values) == pytest.approx([2.0, 2.1, 2.2])
    # One epoch of 40 apart, and fourteen, where four are a tenth.
    assert list(with_fall.values) == pytest.approx([7.5] * 3)
    assert list(with_level.values) == pytest.approx([-25.0] * 3)
    assert verdicts([with_level]) == ["contradicted"]


@pytest.mark.parametrize(
    ("robust", "nonrobust", "verdict"), [(40.0, 8.0, "held"), (40.0, 12.0, "contradicted"), (18.9, 18.9, "not tested")]
)
def test_b1_pathways_start_when_they_have_learned_something(robust: float, nonrobust: float, verdict: str) -> None:
    """At epoch 4, whatever the other epochs are: 19 % is a tenth of the way from chance to 100 %."""
    rows = curves()
    at_4 = rows["probe"].map({"robust": robust, "non-robust": nonrobust})
    learned = robust > 19
    others = rows["probe"].map({"robust": 12.0, "non-robust": 9.0}).where((rows["epoch"] < 4) | (not learned), 50.0)
    curve = at_4.where(rows["epoch"] == 4, others)
    rows["accuracy"] = curve.where(rows["probe"].isin(["robust", "non-robust"]), rows["accuracy"])
    first, second, combination, *_ = claims = b1.measured_claims(measured(rows))
    assert verdicts([first, second]) == [verdict] * 2
    if learned:
        by_robust = robust - (100 - nonrobust) / 9
        by_nonrobust = nonrobust - (100 - robust) / 9
        assert list(first.values) == pytest.approx([by_robust - 9 * by_nonrobust] * 3)
        # Both end at 50 %.
        assert list(combination.values) == pytest.approx([0.8 * (50 - 50 / 9)] * 3)
    *_, ends_on, _, _ = claims
    assert verdicts([combination]) == ["held" if learned else "not tested"]
    assert verdicts([ends_on]) == ["undecided" if learned else "not tested"]


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("epochs", [40, 20])
def test_b1_curves_that_rise_to_the_end_have_not_turned(noise: float, epochs: int) -> None:
    """Both would turn at the end, and so at the same time: nothing is known. Pathway 2 may be shorter."""
    rows = curves()
    rows = rows[(rows["pathway"] == b1.PATHWAY_1) | (rows["epoch"] <= epochs)].reset_index(drop=True)
    rising = rows["probe"].isin(["robust", b1.CORRELATION])
    drawn = np.random.default_rng(0).normal(0, noise, rising.sum())
    rows.loc[rising, "accuracy"] = 2.0 * rows.loc[rising, "epoch"] + drawn
    *_, with_fall, with_level = b1.measured_claims(measured(rows))
    assert verdicts([with_fall, with_level]) == ["not tested"] * 2


@pytest.mark.parametrize(("level", "verdict"), [(20, "contradicted"), (34, "not tested")])
def test_b1_one_curve_that_has_not_turned_is_far_from_one_that_turned_long_before(level: int, verdict: str) -> None:
    """The correlation of pathway 2 rises to the end of 40 epochs, so it turns at 36 at the earliest."""
    rows = curves()
    second = rows["pathway"] == b1.PATHWAY_2
    rows.loc[second & (rows["probe"] == "robust"), "accuracy"] = 2.0 * rows["epoch"].clip(upper=level)
    rows.loc[second & (rows["probe"] == b1.CORRELATION), "accuracy"] = 2.0 * rows["epoch"]
    *_, with_level = b1.measured_claims(measured(rows))
    assert verdicts([with_level]) == [verdict]
    if verdict == "contradicted":
        assert list(with_level.values) == pytest.approx([10 - 40.0] * 3)


def test_b1_repeats_its_sentences_in_each_variant() -> None:
    """In a second variant pathway 1 fits little."""
    other = curves().assign(variant=", resnet18", row=lambda rows: rows["row"] + ", resnet18")
    other.loc[(other["probe"] == "validation") & (other["pathway"] == b1.PATHWAY_1), "accuracy"] -= 10
    settings = b1.Settings(
        pathway_1="a",
        pathway_2="b",
        window=1,
        also=(b1.Variant(pathway_1="a", pathway_2="b", architecture="resnet18"),),
    )
    both = measured(pd.concat([curves(), other], ignore_index=True), of_pathway_2(80.0, 3.0, ", resnet18"))
    claims = b1.measured_claims(replace(both, settings=settings))
    own = [claim.sentence for claim in claims if not claim.setting]
    repeated = {claim.sentence: claim.judge()["verdict"] for claim in claims if claim.setting == "resnet18"}
    assert list(repeated) == own[: len(repeated)]
    # Figure 1 alone: where pathway 1 ends, and the correlations.
    assert len(own) - len(repeated) == 3
    assert [sentence for sentence, verdict in repeated.items() if verdict != "held"] == [own[3]]


def test_b1_a_seed_that_never_learns_leaves_the_start_untested() -> None:
    rows = curves()
    failed = (rows["seed"] == 1) & rows["probe"].isin(["robust", "non-robust"])
    start, _, combination, *_ = b1.measured_claims(measured(rows.assign(accuracy=rows["accuracy"].mask(failed, 10.0))))
    assert verdicts([start, combination]) == ["not tested"] * 2
    assert [seed for seed, value in start.values.items() if np.isnan(value)] == [1]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("robust", "nonrobust", "classes", "margin"),
    [
        # Table 5, ResNet-18 without augmentation: a rate of 0.1 with decay 5e-4, and 0.01 without.
        (18.6, 35.9, 10, 7.644444),
        (80.7, 2.6, 10, -6.577778),
        (4.0, 64.0, 10, -5.333333),
        (50.0, 50.0, 2, np.nan),
    ],
)
def test_b1_a_combination_has_a_tenth_of_each(robust: float, nonrobust: float, classes: int, margin: float) -> None:
    given = (pd.Series([value]) for value in (robust, nonrobust))
    assert list(margin_of_combination(*given, classes)) == pytest.approx([margin], nan_ok=True)


def of_pathway_2(robust: float, nonrobust: float, variant: str = "", classes: int = 10) -> pd.DataFrame:
    """The accuracies on D_shift and on D after pathway 2, a little different in every seed."""
    return pd.DataFrame(
        {"row": b1.PATHWAY_2 + variant, "pathway": b1.PATHWAY_2, "variant": variant, "seed": seed, "eps": 0.0}
        | {"label_shift": shift, "accuracy": accuracy + 0.01 * seed, "classes": classes}
        for seed in SEEDS
        for shift, accuracy in ((0, nonrobust), (1, robust))
    )


@pytest.mark.parametrize(
    ("robust", "nonrobust", "classes", "verdict"),
    [
        # The ends of Figure 1.
        (80.7, 2.6, 10, "held"),
        # A network that has robust features alone, with 43 % and with 90 % of them, and its counterpart.
        (43.0, 57 / 9, 10, "held"),
        (90.0, 10 / 3, 4, "held"),
        (57 / 9, 43.0, 10, "contradicted"),
        # Nine tenths of each kind: above what the other kind alone gives there are 24.4 and 13.3 points.
        (30.0, 20.0, 10, "contradicted"),
        # Too few of either to tell, and less on D_shift than by chance.
        (5.0, 9.0, 10, "not tested"),
        (10.0, 9.5, 10, "not tested"),
        (2.6, 80.7, 10, "contradicted"),
        # Nothing on D is no more than almost nothing.
        (30.0, 0.0, 10, "held"),
        (90.0, 10.0, 2, "not tested"),
    ],
)
def test_b1_counts_robust_features_above_what_the_others_give(
    robust: float, nonrobust: float, classes: int, verdict: str
) -> None:
    settings = b1.Settings(pathway_1="a", pathway_2="b")
    (claim,) = b1.claims(results(settings, evaluations=of_pathway_2(robust, nonrobust, classes=classes)))
    assert verdicts([claim]) == [verdict]


def test_b1_judges_pathway_2_of_each_variant() -> None:
    also = b1.Variant(pathway_1="a", pathway_2="b", architecture="resnet18")
    settings = b1.Settings(pathway_1="a", pathway_2="b", also=(also,))
    rows = pd.concat([of_pathway_2(80.7, 2.6), of_pathway_2(80.7, 40.0, also.suffix)])
    claims = b1.claims(results(settings, evaluations=rows))
    assert [(claim.setting, *verdicts([claim])) for claim in claims] == [("", "held"), ("resnet18", "contradicted")]


@pytest.mark.parametrize(("low", "end", "turns"), [(39.99, 39.99, False), (34.0, 34.0, True), (34.0, 39.5, True)])
def test_b1_a_fall_of_a_hundredth_is_not_sharp(low: float, end: float, turns: bool) -> None:
    """A curve that falls from 40 % has turned, although it rises again."""
    rows = curves()
    robust = (rows["pathway"] == b1.PATHWAY_1) & (rows["probe"] == "robust")
    epoch = rows.loc[robust, "epoch"]
    rows.loc[robust, "accuracy"] = np.where(epoch < 12, 40.0, np.where(epoch < epoch.max(), low, end))
    given = measured(rows)
    *_, with_fall, _ = b1.measured_claims(given)
    assert np.isfinite(with_fall.values).all() == turns
    assert ("it does not turn in every seed" in with_fall.quantity) != turns
    turning = b1.table(given).set_index(["row", "probe"])["turning_epoch"]["pathway 1", "robust"]
    assert turning == 11.5 if turns else np.isnan(turning)


def test_b1_refuses_two_variants_of_one_name() -> None:
    study = read_study(STUDIES / "two-pathways-cifar10.yaml")
    again = b1.Settings(pathway_1="a", pathway_2="b", also=(b1.Variant(pathway_1="c", pathway_2="d"),))
    with pytest.raises(
        UserError, match=r"^experiments\.B1\.also: two variants have the same data set and architecture$"
    ):
        b1.needs(Pieces(study), again)


def test_b1_probes_one_model_per_variant_and_pathway() -> None:
    study = read_study(STUDIES / "two-pathways-cifar10.yaml")
    pieces = Pieces(replace(study, seeds=(0,)))
    settings = b1.Settings(
        pathway_1="pathway-1",
        pathway_2="pathway-2",
        also=(
            b1.Variant(pathway_1="pathway-1-cinic", pathway_2="pathway-2", data="CINIC-10", architecture="resnet18"),
        ),
    )
    found = b1.needs(pieces, settings)
    needs = [need for need in found if isinstance(need.recipe.parameters, Model)]
    tested = [need for need in found if need not in needs]
    assert [(need.row, need.recipe.inputs["model"]) for need in tested] == [
        (need.row, need.recipe) for need in needs if need.columns["pathway"] == b1.PATHWAY_2
    ]
    assert [need.recipe.inputs["data"] for need in tested] == [pieces.data(), pieces.data("CINIC-10")]
    assert [need.row for need in needs] == [
        "pathway 1",
        "pathway 2",
        "pathway 1, resnet18, CINIC-10",
        "pathway 2, resnet18, CINIC-10",
    ]
    assert [need.columns["pathway"] for need in needs] == [b1.PATHWAY_1, b1.PATHWAY_2] * 2
    assert len({need.columns["variant"] for need in needs}) == 2
    assert needs[2].recipe.inputs["original"] is pieces.data("CINIC-10")
    parameters = needs[2].recipe.parameters
    assert isinstance(parameters, Model)
    assert parameters.architecture.name == "resnet18"


def test_b4_asks_for_both_transfers() -> None:
    pieces = Pieces(replace(read_study(STUDIES / "digits-full.yaml"), seeds=(0,)))
    settings = b4.Settings(normal="standard", overfit="pathway-2", overfit_data="first-half", images=50, every=2)
    normal, overfit = b4.needs(pieces, settings)
    assert normal.recipe.inputs["data"] is normal.recipe.inputs["normal"].inputs["data"] is pieces.data()
    half = pieces.data("first-half")
    assert overfit.recipe.inputs["data"] is overfit.recipe.inputs["overfit"].inputs["data"] is half
    assert set(normal.recipe.inputs) == {"data", "normal", "overfit"}
    assert normal.recipe.inputs["normal"] is overfit.recipe.inputs["normal"]
    assert normal.recipe.inputs["normal"].parameters.seed != normal.recipe.parameters.seed  # type: ignore[union-attr]
    assert "robustfeatures.training.adversary" in normal.recipe.code_entries
    (attack,) = (probe for probe in normal.recipe.parameters.probes if probe.attack)  # type: ignore[union-attr]
    assert attack.transfer_to == ("normal", "overfit")


def b4_results(validation: float) -> Results:
    """Success on the network itself, and on each of the two that see the same examples."""
    shares = {
        ("train", "itself"): (100.0, 100.0),
        ("validation", "itself"): (98.0, validation),
        (b4.ATTACK, "itself"): (90.0, 80.0),
        (b4.ATTACK, "normal"): (60.0, 7.0),
        (b4.ATTACK, "overfit"): (30.0, 4.0),
    }
    names = ("row", "probe", "network", "accuracy")
    rows = [
        {**dict(zip(names, (row, *taken, values[place] + seed), strict=True)), "seed": seed, "epoch": 3, "images": 9}
        for taken, values in shares.items()
        for place, row in enumerate(("normal", "overfit"))
        for seed in SEEDS
    ]
    return results(b4.Settings(normal="standard", overfit="pathway-2"), pd.DataFrame(rows))


def test_b4_tells_the_networks_of_one_probe_apart() -> None:
    given = b4_results(90.0)
    table = b4.table(given).set_index(["row", "probe"])["accuracy"]
    assert table["normal", b4.ATTACK] == 91
    assert table["normal", b4.OVERFIT] == 31
    assert table["overfit", b4.NORMAL] == 8
    assert table["overfit", b4.GAP] == 10
    values = [list(claim.values) for claim in b4.claims(given)]
    assert values == [[40.0, 41.0, 42.0], [30.0, 31.0, 32.0], [53.0] * 3, [3.0, 2.0, 1.0], [6.0, 5.0, 4.0]]


def test_b4_tests_nothing_on_a_network_that_does_not_overfit() -> None:
    normal, *overfit = b4.claims(b4_results(97.0))
    assert len(normal.values) == 3
    assert verdicts(overfit) == ["not tested"] * 4
    assert all("3.0 for the overfit network, 2.0 for the normal one" in claim.quantity for claim in overfit)


def test_b5_tests_each_model_on_both_sets() -> None:
    study = read_study(STUDIES / "digits-full.yaml")
    first = b5.CrossSet(data="first-half", training="standard")
    second = b5.CrossSet(data="second-half", training="standard")
    settings = b5.Settings(first=first, second=second, independent=False)
    needs = b5.needs(Pieces(replace(study, seeds=(0,))), settings)
    assert [(need.row, need.columns["tested_on"]) for need in needs] == [
        (row, data)
        for half in ("first-half", "second-half")
        for row in (half, f"{half}, D_det")
        for data in ("first-half", "second-half")
    ]
    assert len({need.recipe.digest for need in needs}) == 8
    # Each test set has its own most frequent class.
    chance = {"first-half": 10.0, "second-half": 11.0}
    rows = [
        {"row": need.row, "seed": seed, "chance": chance[need.columns["tested_on"]], "eps": 0.0}
        | {"accuracy": 25.0 + seed, **need.columns}
        for need in needs
        for seed in SEEDS
    ]
    claims = b5.claims(results(settings, evaluations=pd.DataFrame(rows)))
    assert [list(claim.values) for claim in claims] == [[14.0, 15.0, 16.0], [15.0, 16.0, 17.0]]
    assert [claim.setting for claim in claims] == [
        f"first-half to second-half{b5.WEAKER}",
        f"second-half to first-half{b5.WEAKER}",
    ]
    with pytest.raises(UserError, match=r"experiments\.B5\.second\.data: 'first-half' is the first set too"):
        b5.needs(Pieces(study), replace(settings, second=first))


def test_b5_holds_on_table_2() -> None:
    """20.5 % and 19.6 %, where chance is 10 %."""
    published = read_published(b5.EXPERIMENT, "CIFAR-minus-Flickr and CINIC-10")
    assert published is not None
    names = [b5.CrossSet(data=name, training="any") for name in ("CIFAR-minus-Flickr", "CINIC-10")]
    rows = pd.DataFrame(published["rows"]).assign(seed=0, chance=10.0)
    claims = b5.claims(results(b5.Settings(first=names[0], second=names[1]), evaluations=rows))
    assert [list(claim.values) for claim in claims] == [[pytest.approx(10.5)], [pytest.approx(9.6)]]
    assert len({claim.sentence for claim in claims}) == 1


def test_b5_halves_share_no_image() -> None:
    from robustfeatures.data.preparation import prepare_splits

    study: Study = read_study(STUDIES / "digits-full.yaml")
    halves = [prepare_splits(study.other_data[name], Path()) for name in ("first-half", "second-half")]
    assert study.data is not None
    whole = prepare_splits(study.data, Path())
    for split in ("train", "test"):
        one, other = (set(half[split].source_index.tolist()) for half in halves)
        assert not one & other
        assert one | other == set(whole[split].source_index.tolist())
