"""The card of an exported data set: which study makes it again."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.files import read_json, write_json
from robustfeatures.pipeline.plan.tasks import make_tasks, write_tasks
from robustfeatures.pipeline.study.config import Config
from robustfeatures.tools.dataset_card import write_card
from tests.tools.made import Made


def test_the_command_names_the_study_of_the_newest_plan(tmp_path: Path) -> None:
    """Not a study that has another name now; and a study without tables too."""
    made = Made(tmp_path)
    recipe = made.plan.recipes[made.name("data/")]
    made.make(recipe)
    index = np.arange(2)
    images = ImageDataset(np.zeros((2, 1, 4, 4), np.uint8), index, {"source_index": index}, ("a", "b"))
    for moment, study in enumerate(("before", "now")):
        tasks = make_tasks(made.plan, Config(study=study), gpus=0)
        write_tasks(made.artifacts, tasks)
        os.utime(made.artifacts.newest_tasks()[0], (moment, moment))
    damaged = made.artifacts.tasks("damaged")
    damaged.write_text("[1")
    write_card(tmp_path / "card.md", images, {"train": (2, 1)}, made.artifacts.reference(recipe.name), None, [])
    assert "--config study=now seeds_per_job=1" in (tmp_path / "card.md").read_text()


def test_the_command_says_that_the_code_had_edits(tmp_path: Path) -> None:
    made = Made(tmp_path)
    recipe = made.plan.recipes[made.name("data/")]
    made.make(recipe)
    path, index = made.artifacts.reference(recipe.name), np.arange(2)
    images = ImageDataset(np.zeros((2, 1, 4, 4), np.uint8), index, {"source_index": index}, ("a", "b"))
    reference = read_json(path)
    warning = "\n# The code that made it had edits that are not in this commit.\n"
    for commit, edited in (("abc1234", False), ("abc1234-dirty", True)):
        write_json(path, reference | {"built": reference["built"] | {"git_commit": commit}})
        write_card(tmp_path / "card.md", images, {"train": (2, 1)}, path, None, [])
        card = (tmp_path / "card.md").read_text()
        assert "\ngit checkout abc1234\n" in card
        assert (warning in card) == edited


def test_damaged_rows_of_the_source_are_left_out(tmp_path: Path) -> None:
    made = Made(tmp_path)
    derived = made.plan.recipes[made.name("derived/digits-D_NR-images-")]
    evaluation = made.plan.recipes[made.name("evaluation/digits-standard-")]
    rows = "label_shift,eps,attacks,correct,total\n0,0.0,0,90,100\n"
    for recipe in made.plan.recipes.values():
        made.make(recipe, files={"rows.csv": rows} if recipe is evaluation else None)
    index = np.arange(2)
    images = ImageDataset(np.zeros((2, 1, 4, 4), np.uint8), index, {"source_index": index}, ("a", "b"))

    def card() -> str:
        source = made.artifacts.reference(derived.name)
        write_card(tmp_path / "card.md", images, {"train": (2, 1)}, source, made.store.root, [])
        return (tmp_path / "card.md").read_text()

    assert "90.0 % without an attack" in card()
    (made.store.payload(evaluation.digest) / "rows.csv").write_text(rows[:-5])
    assert "without an attack" not in card()
