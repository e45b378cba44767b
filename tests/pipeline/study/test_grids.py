"""Grids: the cells of a grid, and the messages for wrong lines."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.study import Study, read_study
from robustfeatures.training.settings import Augmentation
from tests.conftest import REPOSITORY

SMOKE = REPOSITORY / "workflow" / "studies" / "smoke.yaml"


def written(tmp_path: Path, *cells: dict[str, object], base: str = "pathway-1") -> Path:
    values = yaml.safe_load(SMOKE.read_text())
    values["grids"] = {"table": {"base": base, "cells": list(cells)}}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path


def test_cells_are_every_combination(tmp_path: Path) -> None:
    study = read_study(
        written(
            tmp_path,
            {"learning_rate": [0.1, 0.01], "augmentation": [None, {"crop_padding": 4, "flip": True}]},
            {"learning_rate": [0.1], "weight_decay": [1e-5, 2.25e-4]},
        )
    )
    cells = study.cells("table")
    assert [tuple(cell.varied.values()) for cell in cells] == [
        (0.1, "none", 5e-3),
        (0.1, "crop_padding4_flip", 5e-3),
        (0.01, "none", 5e-3),
        (0.01, "crop_padding4_flip", 5e-3),
        (0.1, "none", 1e-5),
        (0.1, "none", 2.25e-4),
    ]
    assert list(cells[0].varied) == ["learning_rate", "augmentation", "weight_decay"]
    assert cells[5].name == "table.learning_rate-0.1.weight_decay-0.000225"
    assert cells[1].training.augmentation == Augmentation(crop_padding=4, flip=True)
    base = study.training["pathway-1"]
    for cell in cells:
        assert study.training[cell.name] == cell.training
        assert (cell.training.epochs, cell.training.milestones) == (base.epochs, base.milestones)


def test_a_block_that_is_added_renames_no_cell(tmp_path: Path) -> None:
    """This holds although the new field then also distinguishes every cell."""
    block = {"weight_decay": [1e-5, 5e-4], "learning_rate": [0.1]}
    before = read_study(written(tmp_path, block)).cells("table")
    after = read_study(written(tmp_path, block, {"momentum": [0.0], "learning_rate": [0.1]})).cells("table")
    assert [cell.name for cell in before] == [
        "table.weight_decay-1e-05.learning_rate-0.1",
        "table.weight_decay-0.0005.learning_rate-0.1",
    ]
    assert [(cell.name, cell.training) for cell in after[:2]] == [(cell.name, cell.training) for cell in before]
    assert after[2].name == "table.momentum-0.learning_rate-0.1"
    assert all(list(cell.varied) == ["weight_decay", "learning_rate", "momentum"] for cell in after)


def test_the_same_cell_in_two_blocks_is_told(tmp_path: Path) -> None:
    """The message comes whatever fields the blocks name it by."""
    path = written(tmp_path, {"learning_rate": [0.1]}, {"learning_rate": [0.1], "weight_decay": [5e-3]})
    with pytest.raises(UserError, match=r"grids\.table\.cells\.1: the cell 'table\.learning_rate-0\.1\.weight_decay-"):
        read_study(path)


def test_a_cell_is_a_training_like_any_other(tmp_path: Path) -> None:
    pieces = Pieces(read_study(written(tmp_path, {"weight_decay": [5e-3, 0.0]})))
    same, without = (pieces.downstream_model("D_det", 0, training=cell.name) for cell in pieces.grid("table"))
    assert same.digest == pieces.downstream_model("D_det", 0, training="pathway-1").digest
    assert without.digest != same.digest


def test_a_field_within_a_field(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, {"adversary.eps": [0.1, 0.2]}, base="adversarial"))
    adversaries = [cell.training.adversary for cell in study.cells("table")]
    assert [adversary and adversary.eps for adversary in adversaries] == [0.1, 0.2]
    assert [dict(cell.varied) for cell in study.cells("table")] == [{"adversary.eps": 0.1}, {"adversary.eps": 0.2}]


@pytest.mark.parametrize(
    ("cells", "base", "message"),
    [
        ({"weight_decay": [0.0]}, "pathway-3", "grids.table.base: 'pathway-3' is unknown (did you mean 'pathway-"),
        (
            {"weight_decy": [0.0]},
            "pathway-1",
            "grids.table.cells.0.weight_decy: unknown field (did you mean 'weight_decay'?)",
        ),
        (
            {"weight_decay": [0.0, -1.0]},
            "pathway-1",
            "grids.table.cells.0.weight_decay: input should be greater than or equal to 0, not -1.0",
        ),
        ({"schedule": ["steps"]}, "pathway-1", "grids.table.cells.0.schedule: 'steps' is unknown (did you mean 'step'"),
        ({"adversary.eps": [0.1]}, "pathway-1", "grids.table.cells.0.adversary.eps: the base has no 'adversary'"),
        ({"epochs.x": [1]}, "pathway-1", "grids.table.cells.0.epochs.x: the base has no fields in 'epochs'"),
        ({"adversary.epss": [0.1]}, "adversarial", "grids.table.cells.0.adversary.epss: unknown field"),
        (
            {"weight_decay": [0.0, 0.0]},
            "pathway-1",
            "grids.table.cells.0: the cell 'table.weight_decay-0' appears twice",
        ),
        ({"weight_decay": []}, "pathway-1", "grids.table.cells.0.weight_decay: "),
        ({"weight_decay": 0.0}, "pathway-1", "grids.table.cells.0.weight_decay: "),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, cells: dict[str, object], base: str, message: str) -> None:
    path = written(tmp_path, cells, base=base)
    with pytest.raises(UserError) as caught:
        read_study(path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


def test_an_unknown_grid_is_told() -> None:
    with pytest.raises(UserError, match=r"^grids: 'table' is missing"):
        Pieces(Study(title="none", seeds=(0,), experiments={})).grid("table")


def test_a_cell_with_the_name_of_another_training_is_refused(tmp_path: Path) -> None:
    """Of two trainings with one name the second would silently take the place of the first."""
    path = written(tmp_path, {"epochs": [3]})
    values = yaml.safe_load(path.read_text())
    same = {**values, "training": {**values["training"], "table.epochs-3": values["training"]["standard"]}}
    two = {**values, "grids": {**values["grids"], "table.epochs-3": {**values["grids"]["table"], "cells": [{}]}}}
    for changed in (same, two):
        path.write_text(yaml.safe_dump(changed, sort_keys=False))
        with pytest.raises(
            UserError, match=r"grids\.table(\.epochs-3)?: another training has the name of its cell 'ta"
        ):
            read_study(path)
