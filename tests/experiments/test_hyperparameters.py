"""B3: its crossing, its claims and its table beside Table 5."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from robustfeatures.errors import UserError
from robustfeatures.experiments import b3_hyperparameters as b3
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.report.building import read_published
from robustfeatures.pipeline.study.study import read_study
from tests.experiments.two_pathways_rows import STUDIES, TESTED, grid_rows, results, verdicts


def test_b3_finds_the_crossing_of_its_longest_series() -> None:
    """D rises by 40 points per 1e-3, D_shift falls by as much, from 0 and 100: they cross at 1.25e-3."""
    rows = grid_rows(
        {"D": lambda decay, seed: 4e4 * decay + seed, "D_shift": lambda decay, seed: 100 - 4e4 * decay + seed}
    )
    rows = rows.assign(row=[f"cell-{number}" for number in range(len(rows))])
    given = results(b3.Settings(grid="any"), evaluations=rows)
    line = b3.select_series(given)
    assert set(line["augmentation"]) == {"no"}
    assert sorted(line["weight_decay"].unique()) == [0.0, 1e-3, 2e-3, 3e-3]
    crossing, low, high = b3.find_crossing(b3.fit_transitions(line))
    assert (crossing, low, high) == pytest.approx((1.25e-3, 1.25e-3, 1.25e-3))
    pathway_2, pathway_1, sharp = b3.claims(given)
    # D is 0, 1 and 2 without weight decay, and 120 points higher with most of it.
    assert pathway_2.setting == "learning rate 0.5"
    assert list(pathway_2.values) == pytest.approx([800 / 9, 80.0, 640 / 9])
    assert list(pathway_1.values) == pytest.approx([120.0] * 3)
    assert verdicts([pathway_2, pathway_1, sharp]) == ["held", "held", "contradicted"]
    assert "0.00125" in sharp.quantity
    # One training per decay: their differences are larger than those of test images.
    assert not sharp.of_images
    # The middle half of a straight rise is half of the series.
    assert list(sharp.values) == pytest.approx([100 * (0.625 - 1.5) / 3] * 3)
    assert len(b3.table(given)) == 12
    left, right, _ = b3.figure(given).axes
    assert list(right.get_xticks()) == [0.0, 1e-3, 2e-3, 3e-3]
    assert {"-100", "140"} <= {text.get_text() for text in left.texts}


def test_b3_has_students_interval_of_the_crossings_of_its_seeds() -> None:
    """D rises by 40 points per 1e-3 from 0, D_shift is 40, 41 and 42: they cross at 1, 1.025 and 1.05 times 1e-3."""
    rows = grid_rows({"D": lambda decay, seed: 4e4 * decay, "D_shift": lambda decay, seed: 40.0 + seed})
    line = b3.select_series(results(b3.Settings(grid="any"), evaluations=rows))
    half = stats.t.ppf(0.975, 2) * 0.025e-3 / 3**0.5
    assert b3.find_crossing(b3.fit_transitions(line)) == pytest.approx((1.025e-3, 1.025e-3 - half, 1.025e-3 + half))


def test_b3_a_gap_that_is_rounded_to_zero_has_no_sign() -> None:
    rows = grid_rows({"D": lambda decay, seed: 50.0 - 0.1, "D_shift": lambda decay, seed: 50.0})
    given = results(b3.Settings(grid="any"), evaluations=rows)
    assert {text.get_text() for text in b3.figure(given).axes[0].texts} == {"0"}


def test_b3_does_not_judge_a_transition_that_does_not_happen() -> None:
    rows = grid_rows({"D": lambda decay, seed: 4e3 * decay + seed, "D_shift": lambda decay, seed: 80.0 + seed})
    *_, sharp = b3.claims(results(b3.Settings(grid="any"), evaluations=rows))
    assert verdicts([sharp]) == ["not tested"]
    assert sharp.quantity.endswith("; not tested: in a seed the two do not cross")
    given = results(b3.Settings(grid="any"), evaluations=rows)
    assert all(math.isnan(number) for number in b3.find_crossing(b3.fit_transitions(b3.select_series(given))))
    assert "crossing" not in str([text.get_text() for text in b3.figure(given).legends[0].get_texts()])


def test_b3_networks_that_learned_nothing_are_on_no_pathway() -> None:
    """With most decay the network is constant: 10 % on D are more than 2 %, and 10 % on both are no crossing."""
    d, d_shift = {0.0: 2.0, 1e-3: 3.0, 2e-3: 4.0, 3e-3: 10.0}, {0.0: 80.0, 1e-3: 79.0, 2e-3: 78.0, 3e-3: 10.0}
    rows = grid_rows({"D": lambda decay, seed: d[decay], "D_shift": lambda decay, seed: d_shift[decay]})
    pathway_2, pathway_1, sharp = b3.claims(results(b3.Settings(grid="any"), evaluations=rows))
    assert verdicts([pathway_2, pathway_1, sharp]) == ["held", "not tested", "not tested"]
    none = b3.claims(results(b3.Settings(grid="any"), evaluations=rows.assign(accuracy=10.0)))
    assert verdicts(none) == ["not tested"] * 3
    d[3e-3] = 60.0
    rows = grid_rows({"D": lambda decay, seed: d[decay], "D_shift": lambda decay, seed: d_shift[decay]})
    assert verdicts(b3.claims(results(b3.Settings(grid="any"), evaluations=rows)))[1:] == ["held", "held"]


@pytest.mark.parametrize("fields", [{"weight_decay"}, {"weight_decay", "learning_rate", "augmentation", "batch_size"}])
def test_another_grid_than_table_5_is_not_compared_with_it(fields: set[str]) -> None:
    published = read_published(b3.EXPERIMENT, "CIFAR-10")
    assert published is not None
    rows = pd.DataFrame(published["rows"]).query("augmentation == 'no' and learning_rate == 0.1")
    rows = rows.assign(batch_size=128, eps=0.0, row="cell", seed=0, label_shift=(rows["test_set"] != "D").astype(int))
    kept = rows.drop(columns=["test_set", *({"learning_rate", "augmentation"} - fields)])
    kept = kept if "batch_size" in fields else kept.drop(columns="batch_size")
    given = replace(
        results(b3.Settings(grid="any"), evaluations=kept),
        published=pd.DataFrame(published["rows"]),
        comparable=True,
    )
    table = b3.table(given)
    assert len(table) == len(rows)
    assert table["published_accuracy"].isna().all()


def test_b3_needs_a_grid_along_the_weight_decay() -> None:
    study = read_study(STUDIES / "digits-full.yaml")
    grids = {name: replace(grid, cells=({"learning_rate": (0.1,)},)) for name, grid in study.grids.items()}
    with pytest.raises(UserError, match=r"^grids.pathways.cells: none varies weight_decay"):
        b3.needs(Pieces(replace(study, grids=grids)), b3.Settings(grid="pathways"))


def test_b3_stands_beside_table_5() -> None:
    """Every number of the published table finds its cell of the full study's grid."""
    study = read_study(STUDIES / "two-pathways-cifar10.yaml")
    published = read_published(b3.EXPERIMENT, "CIFAR-10")
    assert published is not None
    rows = pd.DataFrame(
        [
            {"row": cell.name, "seed": 0, **TESTED[test_set], "accuracy": 50.0, **cell.varied}
            for cell in study.cells("table-5")
            for test_set in ("D", "D_shift")
        ]
    )
    given = replace(
        results(b3.Settings(grid="table-5"), evaluations=rows),
        published=pd.DataFrame(published["rows"]),
        comparable=True,
    )
    table = b3.table(given)
    assert len(table) == 32
    assert table["published_accuracy"].notna().all()
    assert (table.loc[table["test_set"] == "D", "published_accuracy"].sum()) == pytest.approx(
        sum(row["accuracy"] for row in published["rows"] if row["test_set"] == "D")
    )


def published_grid(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Table 5 as evaluations of one seed."""
    found = pd.DataFrame([{**row, **TESTED[row["test_set"]]} for row in rows]).drop(columns="test_set")
    augmentation = found["augmentation"].map({"yes": "crop_padding4_flip", "no": "none"})
    return found.assign(augmentation=augmentation, row="cell", seed=0)


def test_b3_holds_on_table_5() -> None:
    published = read_published(b3.EXPERIMENT, "CIFAR-10")
    assert published is not None
    given = results(b3.Settings(grid="any"), evaluations=published_grid(published["rows"]))
    claims = b3.claims(given)
    *alone, _, _ = claims
    # Robust features alone are right on D in a ninth of what they miss on D_shift, and the other way round.
    assert {claim.setting: np.mean(claim.values) for claim in alone} == {
        "learning rate 0.1": pytest.approx(77.8 - 97.1 / 9 - 9 * 2.9 + 22.2),
        "learning rate 0.01": pytest.approx(80.7 - 97.4 / 9 - 9 * 2.6 + 19.3),
    }
    assert all(np.mean(claim.values) > claim.threshold for claim in claims)


def test_b3_a_grid_without_zero_decay_has_no_such_network() -> None:
    published = read_published(b3.EXPERIMENT, "CIFAR-10")
    assert published is not None
    rows = published_grid(published["rows"])
    alone, *_ = b3.claims(results(b3.Settings(grid="any"), evaluations=rows[rows["weight_decay"] > 0]))
    assert alone.sentence.startswith("Without weight decay and augmentation a network takes pathway 2")
    assert alone.judge()["verdict"] == "not tested"


def test_b3_more_robust_than_non_robust_is_not_robust_alone() -> None:
    """On digits at eps 0.9 without weight decay: 26.9 % on D, 52.2 % on D_shift."""
    published = read_published(b3.EXPERIMENT, "CIFAR-10")
    assert published is not None
    rows = published_grid(published["rows"])
    cell = (rows["augmentation"] == "none") & (rows["weight_decay"] == 0) & (rows["learning_rate"] == 0.1)
    rows.loc[cell, "accuracy"] = rows["label_shift"].map({0: 26.9, 1: 52.2})
    alone, *_ = b3.claims(results(b3.Settings(grid="any"), evaluations=rows))
    assert alone.setting == "learning rate 0.1"
    assert np.mean(alone.values) < alone.threshold
