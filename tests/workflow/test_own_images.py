"""Studies on real photographs from end to end: in an `.npz` file of one's own, and the network of `cifar10-mini`."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from robustfeatures import open_dataset
from robustfeatures.errors import UserError
from robustfeatures.pipeline.study.yaml import read_yaml
from robustfeatures.tools.fetching import fetch
from tests.conftest import REPOSITORY
from tests.in_process import built_study
from tests.photographs import photographs

STUDIES = REPOSITORY / "workflow" / "studies"


def test_colour_photographs(tmp_path: Path) -> None:
    path = tmp_path / "photographs.npz"
    np.savez(path, **photographs(12))
    study = read_yaml(STUDIES / "smoke.yaml")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    study["data"] |= {"source": "npz", "path": str(path), "sha256": sha256}
    study["experiments"] = {name: study["experiments"][name] for name in ("A10", "B1")}
    _, results = built_study(tmp_path / "first", study)
    assert (results / "figures" / "A10.png").stat().st_size > 0
    table = pd.read_csv(results / "tables" / "B1.csv")
    accuracies = table[table["probe"] != "performance correlation"]
    assert set(accuracies["probe"]) == {"train", "validation", "non-robust", "robust"}
    assert set(table["probe"]) == set(accuracies["probe"]) | {"performance correlation"}
    assert accuracies["accuracy"].between(0, 100).all()
    # A file that changes is refused, by name, and leaves nothing half-made.
    np.savez(path, images=np.zeros(1))
    with pytest.raises(UserError, match=r"tested\.yaml: data\.sha256: .*photographs\.npz has the SHA-256"):
        built_study(tmp_path / "second", study)
    assert not list((tmp_path / "second" / "results" / "store").glob("*/manifest.json"))


def test_the_small_study_of_photographs(tmp_path: Path) -> None:
    """`cifar10-mini` with fewer images, from an image folder in place of the download."""
    arrays = photographs(60)
    for row, (image, label) in enumerate(zip(arrays["images"], arrays["labels"], strict=True)):
        path = tmp_path / "photographs" / str(arrays["class_names"][label]) / f"{row:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.transpose(1, 2, 0)).save(path)
    study = read_yaml(STUDIES / "cifar10-mini.yaml")
    study["data"] |= {"source": "folder", "path": str(tmp_path / "photographs"), "test": 0.2}
    study["data"]["operations"] = [
        {"kind": "subset", "split": split, "samples": samples}
        for split, samples in (("train", 200), ("validation", 50), ("test", 100))
    ]
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    sha256 = "".join(fetch(tmp_path / "study.yaml", tmp_path / "raw")).rpartition("sha256: ")[2]
    assert len(sha256) == 64
    study["data"]["sha256"] = sha256
    for training in study["training"].values():
        training |= {"epochs": 2} | ({"milestones": [1]} if "milestones" in training else {})
    study["derived"]["D_det"]["method"]["steps"] = 2
    study["experiments"] = {"A7": {}}
    _, results = built_study(tmp_path, study)
    table = pd.read_csv(results / "tables" / "A7.csv")
    assert table["accuracy"].between(0, 100).all()
    assert len(table) == 4
    (reference,) = (tmp_path / "results" / "artifacts" / "data").glob("*.json")
    train = open_dataset(reference, "train")
    assert train.images.shape == (200, 3, 32, 32)
    assert sorted(train.class_names) == sorted(arrays["class_names"].tolist())
    # Each image is the photograph that its source index names, in the sorted order of the folder.
    order = np.argsort([f"{arrays['class_names'][label]}/{row:04d}" for row, label in enumerate(arrays["labels"])])
    np.testing.assert_array_equal(train.images, arrays["images"][order][train.provenance["source_index"]])
