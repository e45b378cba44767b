"""A9 in miniature: the Restricted ImageNet study, on a folder in ImageNet's layout with a few tiny images a class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from robustfeatures.data import restricted_imagenet
from robustfeatures.data.settings import Data
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.conftest import REPOSITORY
from tests.experiments.known_rows import DOGS
from tests.in_process import built_study

IMAGES = {"train": 2, "val": 1}


def imagenet(root: Path) -> Path:
    """1000 folders per split. The classes in use hold noise in the colour of their super-class, of two shapes."""
    generator = np.random.default_rng(0)
    place = {
        number: group
        for group, (first, last) in enumerate(restricted_imagenet.RANGES.values())
        for number in range(first, last + 1)
    }
    colours = generator.uniform(0, 255, (9, 3))
    for split, count in IMAGES.items():
        for number in range(1000):
            folder = root / split / f"n{number:08d}"
            folder.mkdir(parents=True)
            for image in range(count if number in place else 0):
                height, width = (24, 30) if image % 2 else (28, 20)
                pixels = generator.normal(colours[place[number]], 30, (height, width, 3)).clip(0, 255)
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{image}.JPEG")
    return root


def test_restricted_imagenet_in_miniature(tmp_path: Path) -> None:
    root = imagenet(tmp_path / "imagenet")
    sha256 = restricted_imagenet.compute_digest(Data(source="restricted-imagenet", path=str(root), size=16, sha256=""))
    study = read_yaml(REPOSITORY / "workflow" / "studies" / "not-bugs-restricted-imagenet.yaml")
    assert {"A9", "A2", "X5"} <= study["experiments"].keys()
    study["data"] |= {"path": str(root), "sha256": sha256, "size": 16}
    study["architecture"] = {"name": "small-cnn", "width": 8}
    study["precision"] = "float32"
    study["experiments"] = {"A9": study["experiments"]["A9"]}
    for training in study["training"].values():
        training |= {"epochs": 5, "batch_size": 64, "learning_rate": 0.05}
    study["training"]["adversarial"]["adversary"]["steps"] = 2
    for derived in study["derived"].values():
        derived["method"]["steps"] = 3
    study["robustness"]["attacks"] = [{"kind": "pgd", "steps": 3, "relative_step_sizes": [0.5]}]
    plan, results = built_study(tmp_path, study)
    assert sum(recipe.stage.name == "model" for recipe in plan.recipes.values()) == 3
    table = pd.read_csv(results / "tables" / "A9.csv")
    assert list(table["row"].unique()) == ["standard", "adversarial", "D_R-images"]
    assert sorted(table["eps"].unique()) == [0.0, 0.5, 1.5, 3.0]
    clean = table[(table["row"] == "standard") & (table["eps"] == 0)]["accuracy"].item()
    # The colours tell the nine classes apart; dogs are 118 of 203 images.
    assert clean > DOGS
    rows = pd.read_csv(next(iter((tmp_path / "results" / "store").glob("*/rows.csv"))))
    assert set(rows["classes"]) == {9}
    assert set(rows["total"]) == {203}
    assert set(rows["most_frequent"]) == {118}
    assert (results / "figures" / "A9.png").stat().st_size > 0
    # One seed is judged over test images, and says so.
    claims = pd.read_csv(results / "claims.csv")
    assert "not tested" not in set(claims["verdict"])
    assert set(claims["interval"]) == {"one network"}
