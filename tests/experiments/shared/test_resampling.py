"""Intervals over test images, against closed forms and a bootstrap written out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from robustfeatures.experiments.catalogue import load_experiment
from robustfeatures.experiments.experiment import Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.resampling import ImageOutcomes, can_resample, intervals_over_images
from robustfeatures.experiments.shared.summaries import has_learned, keep_learned, select_by_seed
from robustfeatures.pipeline.report.views.claims import judge

IMAGES = 800
# An end of a percentile interval from 1000 resamples has a standard error of about 0.08 standard deviations.
NEAR = 0.3
HALF = 1.959964

rng = np.random.default_rng(0)


def make_results(folder: Path, rows: Mapping[str, Any], images: Mapping[str, str] | None = None) -> Results:
    """One evaluation per row, of one radius, from its outcomes; `images` names the split where it is another."""
    frames, files = [], []
    for place, (row, robust) in enumerate(rows.items()):
        np.save(folder / f"{row}.npy", np.packbits(np.asarray(robust)[None], axis=1))
        total = len(robust)
        files.append(
            ImageOutcomes((images or {}).get(row, "test"), folder / f"{row}.npy", range(place, place + 1), total)
        )
        count = int(np.sum(robust))
        frames.append(
            {"row": row, "seed": 0, "eps": 0.5, "correct": count, "total": total, "accuracy": 100 * count / total}
        )
    nothing = pd.DataFrame()
    return Results(pd.DataFrame(frames), nothing, nothing, payloads={}, settings=None, images=files)


def difference(results: Results) -> list[Claim]:
    def of(row: str) -> pd.Series:
        return select_by_seed(results.evaluations, row=row, eps=0.5)

    return [Claim("a beats b", "p", "a minus b", list(of("a") - of("b"))), Claim("a", "p", "a", list(of("a")))]


def outcomes() -> dict[str, Any]:
    """Two networks that agree on most images."""
    a = rng.random(IMAGES) < 0.6
    return {"a": a, "b": a ^ (rng.random(IMAGES) < 0.1)}


def test_networks_on_the_same_images_are_paired(tmp_path: Path) -> None:
    """McNemar's setting: the variance of the difference counts only the images on which the two differ."""
    given = outcomes()
    paired, single = intervals_over_images(difference, make_results(tmp_path, given))
    each = 100 * (given["a"].astype(float) - given["b"])
    error = each.std() / IMAGES**0.5
    assert paired == pytest.approx((each.mean() - HALF * error, each.mean() + HALF * error), abs=NEAR * error)
    # One proportion, whose interval Wald's is close to for so many images.
    share = given["a"].mean()
    deviation = 100 * (share * (1 - share) / IMAGES) ** 0.5
    assert single == pytest.approx(
        (100 * share - HALF * deviation, 100 * share + HALF * deviation), abs=NEAR * deviation
    )


def test_resamples_do_not_decide_whether_a_network_has_learned(tmp_path: Path) -> None:
    """At 20 % some resamples are below a tenth of the way from chance to 100 %, which is 19 %."""

    def learned(results: Results) -> list[Claim]:
        accuracy = select_by_seed(results.evaluations, row="a", eps=0.5)
        return [Claim("a", "p", "a", keep_learned(accuracy, results.evaluations, row="a", eps=0.5))]

    given = make_results(tmp_path, {"a": np.arange(IMAGES) < 0.2 * IMAGES})
    accuracy, chance = given.evaluations["accuracy"], pd.Series([10.0])
    rows = given.evaluations.assign(learned=has_learned(accuracy, chance))
    ((low, high),) = intervals_over_images(learned, replace(given, evaluations=rows))
    assert low < 19 < 20 < high
    failed = replace(given, evaluations=rows.assign(learned=has_learned(accuracy - 1.01, chance)))
    assert np.isnan(intervals_over_images(learned, failed)).all()


def test_networks_on_different_images_are_not(tmp_path: Path) -> None:
    given = outcomes()
    apart = make_results(tmp_path, given, images={"b": "another test split"})
    unpaired, _ = intervals_over_images(difference, apart)
    error = 100 * (given["a"].var() / IMAGES + given["b"].var() / IMAGES) ** 0.5
    middle = 100 * (given["a"].mean() - given["b"].mean())
    assert unpaired == pytest.approx((middle - HALF * error, middle + HALF * error), abs=NEAR * error)
    paired, _ = intervals_over_images(difference, make_results(tmp_path, given))
    assert unpaired[1] - unpaired[0] > 2 * (paired[1] - paired[0])


def test_a_claim_that_is_not_a_mean_agrees_with_scipys_bootstrap_of_the_images(tmp_path: Path) -> None:
    """The ratio of two accuracies, resampled by scipy from the images themselves."""
    given = outcomes()

    def ratio(results: Results) -> list[Claim]:
        accuracy = results.evaluations.set_index("row")["accuracy"]
        return [Claim("s", "p", "ratio", [accuracy["a"] / accuracy["b"]])]

    (found,) = intervals_over_images(ratio, make_results(tmp_path, given))
    expected = stats.bootstrap(
        (given["a"].astype(float), given["b"].astype(float)),
        lambda a, b, axis: a.mean(axis=axis) / b.mean(axis=axis),
        paired=True,
        method="percentile",
        n_resamples=20_000,
        rng=np.random.default_rng(1),
    )
    assert found == pytest.approx(tuple(expected.confidence_interval), abs=NEAR * float(expected.standard_error))


def test_a_claim_that_pools_its_seeds_is_judged_resample_by_resample(tmp_path: Path) -> None:
    """One value for all seeds, or values that depend on the other seeds: the intervals are those of single calls."""

    def pooled(results: Results) -> list[Claim]:
        rows = results.evaluations
        mean = float(rows["accuracy"].mean())
        first = list(select_by_seed(rows, row="a", eps=0.5) - mean)
        return [Claim("mean", "p", "mean", [mean]), Claim("a over the mean", "p", "a minus the mean", first)]

    given = make_results(tmp_path, outcomes())
    (low, high), (below, above) = intervals_over_images(pooled, given)
    halves = [tuple(end / 2 for end in interval) for interval in intervals_over_images(difference, given)]
    assert (below, above) == pytest.approx(halves[0])
    assert low < high


def test_a_claim_that_is_not_of_images_does_not_slow_the_others(tmp_path: Path) -> None:
    """It has one value for all resamples together, and no interval over images. The others have those of before."""
    results, calls = make_results(tmp_path, outcomes()), []

    def with_another(results: Results) -> list[Claim]:
        calls.append(1)
        return [Claim("no trend", "p", "a slope", [1.0], of_images=False), *difference(results)]

    (low, high), *others = intervals_over_images(with_another, results)
    assert np.isnan([low, high]).all()
    assert others == intervals_over_images(difference, results)
    assert len(calls) < 120


def test_the_same_results_have_the_same_intervals(tmp_path: Path) -> None:
    given = make_results(tmp_path, outcomes())
    assert intervals_over_images(difference, given) == intervals_over_images(difference, given)


def test_attacks_are_resampled_with_the_evaluations(tmp_path: Path) -> None:
    """Two rows of one file: the first stands among the attacks, the second in both, at its own index."""
    robust = np.stack([rng.random(IMAGES) < 0.7, rng.random(IMAGES) < 0.4])
    np.save(tmp_path / "robust.npy", np.packbits(robust, axis=1))
    rows = pd.DataFrame({"row": "a", "seed": 0, "correct": robust.sum(axis=1), "total": IMAGES, "accuracy": 0.0})
    nothing = pd.DataFrame()
    images = [ImageOutcomes("test", tmp_path / "robust.npy", range(2), IMAGES)]
    given = Results(rows.iloc[1:], nothing, nothing, payloads={}, settings=None, attacks=rows, images=images)

    def claims(results: Results) -> list[Claim]:
        accuracies = list(results.attacks["accuracy"])
        assert list(results.evaluations["accuracy"]) == accuracies[1::2]
        return [Claim("s", "p", "q", accuracies[row::2]) for row in range(2)]

    for (low, high), share in zip(intervals_over_images(claims, given), 100 * robust.mean(axis=1), strict=True):
        assert low < share < high
        assert high - low == pytest.approx(2 * HALF * (share * (100 - share) / IMAGES) ** 0.5, rel=0.15)


def test_values_that_are_no_numbers_leave_the_claim_untested(tmp_path: Path) -> None:
    def claims(results: Results) -> list[Claim]:
        accuracy = float(results.evaluations["accuracy"].iloc[0])
        several = [accuracy, accuracy]
        values = [[accuracy], [float("nan")], [float("inf") if accuracy > 60 else accuracy], several, []]
        return [Claim("s", "p", "q", each) for each in values]

    given = make_results(tmp_path, outcomes())
    first, *others = intervals_over_images(claims, given)
    assert np.isfinite(first).all()
    assert np.isnan(others).all()
    judged = [claim.judge(ends)["verdict"] for claim, ends in zip(claims(given), [first, *others], strict=True)]
    # Two values are two seeds.
    assert judged == ["held", "not tested", "not tested", "held", "not tested"]


@pytest.mark.parametrize("images", [100, 1000])
def test_accuracies_that_no_image_changes_may_still_have_another_value(tmp_path: Path, images: int) -> None:
    """The end is that of Clopper and Pearson for none of N: the share of which none is seen in 2.5 % of samples."""
    end = 100 * stats.binomtest(0, images).proportion_ci(0.95, method="exact").high
    given = make_results(tmp_path, {"a": np.ones(images, bool), "b": np.zeros(images, bool)})
    assert intervals_over_images(difference, given) == [pytest.approx((100.0 - end, 100.0 + end))] * 2

    def lowered(results: Results) -> list[Claim]:
        values = list(select_by_seed(results.evaluations, row="a") - select_by_seed(results.evaluations, row="a"))
        return [Claim("s", "p", "by no more than 2 points", values, threshold=-2.0)]

    (ends,) = intervals_over_images(lowered, given)
    assert lowered(given)[0].judge(ends)["verdict"] == ("undecided" if images == 100 else "held")

    def ranks(results: Results) -> list[Claim]:
        return [Claim("s", "p", "a rank correlation", [0.5] * results.evaluations["seed"].nunique(), of_images=False)]

    # Trainings differ by more than their test images.
    assert ranks(given)[0].judge((0.4, 0.6))["verdict"] == "not tested"


def test_of_splits_of_two_sizes_the_smaller_says_how_many_images_may_be_unseen(tmp_path: Path) -> None:
    given = make_results(tmp_path, {"a": np.ones(100, bool), "b": np.zeros(1000, bool)}, images={"b": "another"})
    end = 100 * stats.binomtest(0, 100).proportion_ci(0.95, method="exact").high
    assert intervals_over_images(difference, given) == [pytest.approx((100.0 - end, 100.0 + end))] * 2


def test_images_say_nothing_of_what_histories_and_measurements_decide(tmp_path: Path) -> None:
    def of_histories(results: Results) -> list[Claim]:
        return [*difference(results), Claim("s", "p", "q", [float(len(results.histories))])]

    def of_measurements(results: Results) -> list[Claim]:
        return [*difference(results), Claim("s", "p", "q", [float(len(results.measurements))])]

    given = make_results(tmp_path, outcomes())
    assert can_resample(difference, given)
    # What no claim reads takes nothing away.
    assert can_resample(difference, replace(given, histories=pd.DataFrame({"row": ["a"]})))
    assert not can_resample(of_histories, given)
    assert not can_resample(of_measurements, given)
    assert not can_resample(difference, replace(given, images=[]))
    assert not can_resample(difference, replace(given, evaluations=given.evaluations.assign(seed=[0, 1])))


def test_with_one_seed_claims_on_measurements_are_not_tested_and_those_on_images_are(tmp_path: Path) -> None:
    def of_measurements(results: Results) -> list[Claim]:
        return [Claim("measured", "p", "q", [float(len(results.measurements))])]

    experiment = replace(load_experiment("C1"), claims=difference, measured_claims=of_measurements)
    rows = judge(experiment, make_results(tmp_path, outcomes()))
    assert [(row["claim"], row["interval"]) for row in rows] == [
        ("a beats b", "one network"),
        ("a", "one network"),
        ("measured", ""),
    ]
    assert [row["verdict"] for row in rows][1:] == ["held", "not tested"]
