"""Claims, summaries and published numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from robustfeatures.experiments.catalogue import experiment_modules, load_experiment
from robustfeatures.experiments.experiment import Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds
from robustfeatures.experiments.shared.units import CORRELATIONS, MINUS_SHARES, SHARES
from robustfeatures.pipeline.report.building import read_published
from robustfeatures.pipeline.report.tables import make_sheets
from robustfeatures.pipeline.report.views.table import render_markdown
from robustfeatures.pipeline.study.checks import PUBLISHED
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.conftest import REPOSITORY

PAPERS = REPOSITORY.parent / "shared" / "papers"


def judge(values: list[float], threshold: float = 0.0) -> dict[str, object]:
    return Claim("s", "p", "q", values, threshold).judge()


def test_the_interval_is_students() -> None:
    """Three values 1, 2, 3: mean 2, standard error 1/sqrt(3), t of 2 degrees of freedom 4.302653."""
    row = judge([1.0, 2.0, 3.0])
    half = 4.302653 / math.sqrt(3)
    assert row["value"] == 2
    assert row["low"] == pytest.approx(2 - half, abs=0.005)
    assert row["high"] == pytest.approx(2 + half, abs=0.005)
    assert row["verdict"] == "undecided"
    assert judge([1.9, 2.0, 2.1])["verdict"] == "held"
    assert judge([1.9, 2.0, 2.1], threshold=2.0)["verdict"] == "undecided"
    assert judge([-1.9, -2.0, -2.1])["verdict"] == "contradicted"


@pytest.mark.parametrize(
    ("difference", "images", "verdict"),
    # The share p for which (1 - p)^N is 0.025: 3.97 % of 91 images, 1.02 % of 360.
    [
        (2.2, 91, "undecided"),
        (-2.2, 91, "undecided"),
        (4.0, 91, "held"),
        (2.2, 360, "held"),
        (-2.2, 360, "contradicted"),
    ],
)
def test_seeds_without_spread_are_as_sure_as_their_images(difference: float, images: int, verdict: str) -> None:
    for seeds in range(2, 9):
        # The same difference of two accuracies, at another level in each seed: equal but for the rounding.
        values = [(90.1 - seed + difference) - (90.1 - seed) for seed in range(seeds)]
        claim = Claim("s", "p", "q", values)
        assert claim.judge(images=images)["verdict"] == verdict
        assert replace(claim, images=images).judge()["verdict"] == verdict
    # Values that are no shares of images, and values that differ, have Student's interval.
    assert replace(claim, of_images=False).judge(images=images)["low"] == pytest.approx(difference)
    spread = replace(claim, values=[difference, difference + 1])
    assert spread.judge(images=images) == spread.judge()


@pytest.mark.parametrize(
    ("values", "bounds", "ends"),
    [
        ([96.0, 100.0, 98.0], SHARES, (93.03, 100.0)),
        ([-4.0, 0.0, -2.0], MINUS_SHARES, (-6.97, 0.0)),
        ([0.96, 1.0, 0.98], CORRELATIONS, (0.9303, 1.0)),
        ([0.5, 0.7, 0.6], CORRELATIONS, (0.3516, 0.8484)),
    ],
)
def test_an_interval_stays_within_the_range_of_its_values(
    values: list[float], bounds: tuple[float, float], ends: tuple[float, float]
) -> None:
    """Student's half width for three values that differ by s each is 4.302653 s / sqrt(3)."""
    row = Claim("s", "p", "q", values, bounds=bounds).judge()
    assert (row["low"], row["high"]) == ends
    assert float(str(judge(values)["high"])) >= ends[1]


def test_a_mean_of_zero_shows_no_rounding() -> None:
    assert sum([0.1, 0.2, -0.3]) != 0
    assert judge([0.1, 0.2, -0.3])["value"] == 0
    assert judge([1e-16, 2e-16, 3e-16])["value"] == 2e-16
    assert str(Claim("s", "p", "q", [-1.0, 1.0], bounds=(-100.0, -0.0)).judge()["high"]) == "0.0"
    assert math.isnan(float(str(judge([math.nan, 1.0])["value"])))
    assert judge([math.inf, 1.0])["value"] == math.inf


@pytest.mark.parametrize("values", [[], [5.0], [math.nan, 1.0, 2.0], [math.inf, 1.0]])
def test_without_an_interval_nothing_is_tested(values: list[float]) -> None:
    row = judge(values)
    assert row["verdict"] == "not tested"
    assert row["interval"] == ""
    assert [row[end] for end in ("low", "high", "margin")] == [None] * 3


def test_one_network_is_judged_over_images_where_there_is_one_value() -> None:
    one = Claim("s", "p", "q", [5.0], 1.0)
    row = one.judge((2.0, 7.0))
    assert [row[name] for name in ("value", "low", "high", "margin", "verdict", "interval", "seeds")] == [
        *(5.0, 2.0, 7.0, 1.0),
        *("held", "one network", 1),
    ]
    assert one.judge((-2.0, 0.5))["verdict"] == "contradicted"
    assert one.judge((0.0, 7.0))["verdict"] == "undecided"
    assert one.judge((math.nan, math.nan))["verdict"] == "not tested"
    several = Claim("s", "p", "q", [1.0, 2.0, 3.0])
    assert several.judge((2.0, 7.0)) == several.judge()
    assert several.judge()["interval"] == "seeds"


ROWS = pd.DataFrame(
    [
        {"row": row, "seed": seed, "eps": eps, "accuracy": 10.0 * seed + eps}
        for row in ("standard", "adversarial")
        for seed in (0, 1, 2)
        for eps in (0.0, 0.25)
    ]
)


def results(*, comparable: bool) -> Results:
    published = read_yaml(PUBLISHED / "not-bugs-2019.yaml")["A1"][0]
    return Results(
        evaluations=ROWS,
        histories=pd.DataFrame(),
        measurements=pd.DataFrame(),
        payloads={},
        settings=None,
        published=pd.DataFrame(published["rows"]),
        published_source=published["source"],
        published_setting=published["setting"],
        comparable=comparable,
    )


def test_published_numbers_stand_beside_the_papers_setting_alone() -> None:
    table = summarise_seeds(ROWS, ["row", "eps"])
    assert list(table["accuracy"]) == [10.0, 10.25, 10.0, 10.25]
    assert list(table["accuracy_std"]) == [10.0] * 4
    assert list(table["seeds"]) == [3] * 4
    beside = add_published(table, results(comparable=True), ["row", "eps"])
    assert list(beside["published_accuracy"]) == [95.25, 4.49, 90.83, 82.48]
    assert list(beside["difference_accuracy"]) == [-85.25, 5.76, -80.83, -72.23]
    alone = add_published(table, results(comparable=False), ["row", "eps"])
    assert alone[["published_accuracy", "difference_accuracy"]].isna().all(axis=None)


@pytest.mark.parametrize("comparable", [False, True])
def test_markdown_labels_what_is_published(comparable: bool) -> None:
    given = results(comparable=comparable)
    table = add_published(summarise_seeds(ROWS, ["row", "eps"]), given, ["row", "eps"])
    experiment = load_experiment("A1")
    text = render_markdown(experiment, given, make_sheets(table, given, experiment), ["Study: a study."])
    measured, published = text.split("Published, without a measurement beside it (Table 7; CIFAR-10):")
    assert "10.00 ± 10.00" in measured
    assert "-14.84 to 34.84" in measured
    assert "87.68" in published
    # Values of another setting say so, and have no difference to ours.
    assert "95.25" in measured
    assert "95.25" not in published
    assert ("-85.25" in measured) == comparable
    assert ("published for CIFAR-10" in measured) == ("of other data or networks" in measured) == (not comparable)
    assert text.endswith("- Study: a study.\n")
    # One line a row, in the order of the experiment, then one line a row and radius.
    names = [line.split("|")[1].strip() for line in measured.splitlines() if line.startswith("| ")]
    assert names == ["network", "standard", "adversarial", "network", *["standard"] * 2, *["adversarial"] * 2]


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*.yaml")), ids=lambda path: path.stem)
def test_published_numbers_are_the_papers(path: Path) -> None:
    """Every number of the data file stands in the text of its paper."""
    if not PAPERS.is_dir():
        pytest.skip("the papers' texts are not here")
    numbers = {float(number) for number in re.findall(r"\d+(?:\.\d+)?", (PAPERS / f"{path.stem}.txt").read_text())}
    if path.stem == "two-pathways-2021":
        # Table 2 has lost two decimal points on its way to text.
        assert {337, 205} <= numbers
        numbers |= {33.7, 20.5}
    if path.stem == "not-bugs-2019":
        # Table 1 has lost a cell on its way to text; the number is that of arXiv 1905.02175.
        assert 87.9 not in numbers
        numbers |= {87.9}
    entries = [entry for part in read_yaml(path).values() if isinstance(part, list) for entry in part]
    rows = [row for entry in entries for row in entry["rows"]]
    quoted = {
        float(cell)
        for row in rows
        for column, cell in row.items()
        # Radii are printed as fractions of 255 too, weight decays as powers of ten.
        if not column.startswith("eps") and column != "weight_decay" and not isinstance(cell, str)
    }
    # feature-averaging-2025 shows its results in figures alone.
    assert bool(quoted) == (path.stem != "feature-averaging-2025")
    assert quoted <= numbers


def test_every_module_is_found_by_its_id() -> None:
    for identifier in experiment_modules():
        assert load_experiment(identifier).id == identifier
        assert load_experiment(identifier).caption


def test_published_numbers_are_those_of_the_setting() -> None:
    """The accuracies of Table 1 of not-bugs-2019, by setting."""
    printed = {
        setting: {row["row"]: row["accuracy"] for row in published["rows"]}
        for setting in ("CIFAR-10", "Restricted ImageNet")
        if (published := read_published(load_experiment("A2"), setting))
    }
    assert printed["Restricted ImageNet"] == {"D": 96.6, "D_rand": 87.9, "D_det": 64.4}
    assert printed["CIFAR-10"]["D_rand"] == 63.3
    assert read_published(load_experiment("A10"), "CIFAR-10") is None


def test_table_7_of_not_bugs_stands_row_by_row() -> None:
    """Clean, 0.25 and 0.5, copied from the paper."""
    published = read_published(load_experiment("A1"), "CIFAR-10")
    assert published is not None
    assert {(row["row"], row["eps"]): row["accuracy"] for row in published["rows"]} == {
        (name, eps): accuracy
        for name, accuracies in {
            "standard": (95.25, 4.49, 0.0),
            "adversarial": (90.83, 82.48, 70.90),
            "D_NR-images": (87.68, 0.82, 0.0),
            "D_NR-noise": (45.60, 1.50, 0.0),
            "D_R-images": (85.40, 48.20, 21.85),
            "D_R-noise": (84.10, 48.27, 29.40),
        }.items()
        for eps, accuracy in zip((0, 0.25, 0.5), accuracies, strict=True)
    }


@pytest.mark.parametrize(
    ("setting", "printed"),
    [
        (
            "MNIST",
            {
                ("Linf", 0.1): (99.31, 99.43, 99.36, 29.45, 95.29, 95.05),
                ("Linf", 0.2): (99.31, 99.22, 98.99, 0.05, 90.79, 92.86),
                ("Linf", 0.3): (99.31, 99.17, 97.37, 0.00, 89.51, 89.92),
                ("L2", 0.5): (99.31, 99.35, 99.41, 94.67, 97.60, 97.70),
                ("L2", 1.5): (99.31, 99.29, 99.24, 56.42, 87.71, 88.59),
                ("L2", 2.5): (99.31, 99.12, 97.79, 46.36, 60.27, 63.73),
            },
        ),
        (
            "CIFAR-10",
            {
                ("Linf", 2 / 255): (92.20, 90.13, 89.64, 0.99, 69.10, 69.92),
                ("Linf", 4 / 255): (92.20, 88.27, 86.54, 0.08, 55.60, 57.79),
                ("Linf", 8 / 255): (92.20, 84.72, 79.57, 0.00, 37.56, 41.93),
                ("L2", 20 / 255): (92.20, 92.04, 91.77, 45.60, 83.94, 84.70),
                ("L2", 80 / 255): (92.20, 88.95, 88.38, 8.80, 67.29, 68.69),
                ("L2", 320 / 255): (92.20, 81.74, 75.75, 3.30, 34.45, 39.76),
            },
        ),
    ],
)
def test_table_4_of_at_odds_stands_row_by_row(
    setting: str, printed: Mapping[tuple[str, float], tuple[float, ...]]
) -> None:
    """Clean accuracy of standard, half-half and robust training, then theirs under attack, copied from the paper."""
    published = read_published(load_experiment("C3"), setting)
    assert published is not None
    kinds = [(row, under) for under in ("no attack", "attack") for row in ("standard", "half-half", "robust")]
    found = {(row["norm"], row["eps_train"], row["row"], row["under"]): row["accuracy"] for row in published["rows"]}
    assert found == {
        (norm, round(eps, 4), *kind): accuracy
        for (norm, eps), accuracies in printed.items()
        for kind, accuracy in zip(kinds, accuracies, strict=True)
    }


@pytest.mark.parametrize("setting", [None, "1200 photographs"])
def test_a_study_of_another_setting_shows_every_one_that_the_paper_prints(setting: str | None) -> None:
    published = read_published(load_experiment("D3"), setting)
    assert published is not None
    assert (published["source"], published["setting"]) == ("Table 1", "MNIST, CIFAR-10, SVHN")
    clean = [row for row in published["rows"] if (row["row"], row["measure"]) == ("standard training", "clean")]
    assert [(row["setting"], row["accuracy"]) for row in clean] == [
        ("MNIST", 99.56),
        ("CIFAR-10", 95.74),
        ("SVHN", 96.84),
    ]
    # One setting alone is told above the table.
    alone = read_published(load_experiment("A1"), setting)
    assert alone is not None
    assert alone["setting"] == "CIFAR-10"
    assert "setting" not in alone["rows"][0]
