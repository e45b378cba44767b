"""The search of Appendix C.2: its grid, and the cell that validation data choose."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

import robustfeatures.experiments.a2_random_and_deterministic_targets as a2
import robustfeatures.experiments.a11_other_architectures as a11
from robustfeatures.errors import UserError
from robustfeatures.experiments.shared.grid_search import SELECTION, TEST, Search
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.study import read_study
from tests.conftest import REPOSITORY
from tests.experiments.known_rows import SEEDS, jitter, make_evaluations, make_results, published_rows


def test_the_grid_of_the_appendix_is_planned_and_chosen_on_validation_data() -> None:
    """Appendix C.2: three rates, two batch sizes, drop or none, augmentation or none."""
    full = read_study(REPOSITORY / "workflow" / "studies" / "not-bugs-cifar10.yaml")
    full = replace(full, seeds=(0,))
    search = Search(grid="hyperparameters", data="with-validation")
    pieces = Pieces(full)
    needs = a2.needs(pieces, a2.Settings(search=search))
    searched = [need for need in needs if "cell" in need.columns]
    assert len(searched) == 24 * 4
    cells = {cell.name: cell.training for cell in pieces.grid("hyperparameters")}
    assert {
        (each.learning_rate, each.batch_size, bool(each.milestones), each.augmentation is not None)
        for each in cells.values()
    } == {
        (rate, batch, drop, augmented)
        for rate in (0.1, 0.05, 0.01)
        for batch in (128, 256)
        for drop in (True, False)
        for augmented in (True, False)
    }
    # Table 3 chose cells of the grid, and they are what the study trains without a search.
    for name in ("D_rand", "D_det", "D_R-images", "D_NR-images"):
        assert full.training[full.derived[name].training] in cells.values()
    assert [need for need in needs if "cell" not in need.columns] == a2.needs(pieces, a2.Settings())
    probes = {probe.name: probe for probe in searched[0].recipe.parameters.probes}  # type: ignore[union-attr]
    assert (probes[SELECTION].input, probes[SELECTION].split) == ("data", "validation")
    assert (probes[TEST].input, probes[TEST].split) == ("original", "test")
    assert searched[0].recipe.inputs["data"].parameters.splits == ("train", "validation")  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"splits: data has no validation split"):
        a2.needs(pieces, a2.Settings(search=Search(grid="hyperparameters")))
    on_original = a2.needs(pieces, a2.Settings(search=replace(search, chosen_on="original")))[-1].recipe
    probes = {probe.name: probe for probe in on_original.parameters.probes}  # type: ignore[union-attr]
    assert (probes[SELECTION].input, probes[SELECTION].split) == ("original", "validation")
    assert on_original.inputs["data"].parameters.splits == ("train",)  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"cifar10 has no validation split, on which .*; give it a share"):
        a2.needs(pieces, a2.Settings(search=Search(grid="hyperparameters", chosen_on="original")))
    others = a11.needs(pieces, a11.Settings(architectures=("vgg16",), search=search))
    evaluated = [need for need in others if "cell" in need.columns and need.recipe.stage.name == "evaluation"]
    assert len(evaluated) == 24 * 2
    assert {need.recipe.inputs["model"].parameters.architecture.name for need in evaluated} == {"vgg16"}  # type: ignore[union-attr]
    fewer = a2.needs(pieces, a2.Settings(search=replace(search, sets=("D_det", "D_rand"))))
    assert {need.row for need in fewer if "cell" in need.columns} == {"D_det", "D_rand"}
    assert [need for need in fewer if "cell" not in need.columns] == a2.needs(pieces, a2.Settings())
    known = "D_rand, D_det, D_rand-robust"
    with pytest.raises(UserError, match=rf"^experiments\.A2\.search\.sets: 'D_R-images' is none of {known}"):
        a2.needs(pieces, a2.Settings(search=replace(search, sets=("D_rand", "D_R-images"))))


def test_a2_shows_the_cell_that_validation_data_choose() -> None:
    """Cell b is better on validation data, cell a on the test images."""
    accuracy = {("a", SELECTION): 50.0, ("a", TEST): 60.0, ("b", SELECTION): 70.0, ("b", TEST): 40.0}
    histories = pd.DataFrame(
        [
            {"row": "D_rand", "seed": seed, "cell": cell, "probe": probe, "accuracy": value + jitter(seed)}
            for (cell, probe), value in accuracy.items()
            for seed in SEEDS
        ]
    )
    settings = a2.Settings(search=Search(grid="g"))
    given = make_results(settings, published_rows("A2", label_shift=0, chance=10.0), histories)
    table = a2.table(given).set_index("row")["accuracy"]
    assert table["D_rand"] == 63.3
    assert table["D_rand, best of the grid: b"] == 40
    assert "D_rand, best of the grid: a" not in table.index


def test_a11_shows_the_cell_that_validation_data_choose() -> None:
    cells = {"a": (50.0, 60.0), "b": (70.0, 40.0)}
    histories = pd.DataFrame(
        [
            {"row": "D_R-images", "architecture": "wide", "seed": seed, "cell": cell, "probe": SELECTION}
            | {"accuracy": values[0] + jitter(seed)}
            for cell, values in cells.items()
            for seed in SEEDS
        ]
    )
    own = {(row, "wide", eps): 80.0 for row in ("D", *a11.DERIVED_SETS) for eps in (0.0, 0.25)}
    searched = {("D_R-images", "wide", eps, cell): values[1] for cell, values in cells.items() for eps in (0.0, 0.25)}
    rows = [
        make_evaluations(own, ("row", "architecture", "eps")),
        make_evaluations(searched, ("row", "architecture", "eps", "cell")),
    ]
    settings = a11.Settings(architectures=("wide",), search=Search(grid="g"))
    given = make_results(settings, pd.concat(rows, ignore_index=True), histories)
    table = a11.table(given).set_index(["row", "eps"])["accuracy"]
    assert table["D_R-images", 0.25] == 80
    assert table["D_R-images, best of the grid: b", 0.25] == 40
    assert len(table) == 8
    assert len(a11.claims(given)[0].values) == len(SEEDS)
