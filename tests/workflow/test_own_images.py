"""Studies on real photographs from end to end: in an `.npz` file of one's own, and the network of `cifar10-mini`."""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd
from PIL import Image

from robustfeatures import open_dataset
from tests.conftest import Workspace
from tests.photographs import photographs


def test_colour_photographs(workspace: Workspace) -> None:
    path = workspace.folder / "photographs.npz"
    np.savez(path, **photographs(30))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    source = f"source: npz\n  path: photographs.npz\n  sha256: {sha256}"
    workspace.edit("workflow/studies/smoke.yaml", "source: digits", source)
    workspace.snakemake("results/smoke/tables/B1.csv", "results/smoke/figures/A10.png")
    table = pd.read_csv(workspace.folder / "results/smoke/tables/B1.csv")
    accuracies = table[table["probe"] != "performance correlation"]
    assert set(accuracies["probe"]) == {"train", "validation", "non-robust", "robust"}
    assert set(table["probe"]) == set(accuracies["probe"]) | {"performance correlation"}
    assert accuracies["accuracy"].between(0, 100).all()
    # A file that changes is refused, by name, and leaves nothing half-made.
    np.savez(path, images=np.zeros(1))
    workspace.edit("workflow/studies/smoke.yaml", "validation: 0.15", "validation: 0.16")
    done = workspace.snakemake("results/smoke/tables/B1.csv", check=False)
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert any(line.startswith("robustfeatures: data/npz-") and "photographs.npz" in line for line in text.splitlines())


def test_the_small_study_of_photographs(workspace: Workspace) -> None:
    """`cifar10-mini` with fewer images, from an image folder in place of the download."""
    arrays = photographs(60)
    for row, (image, label) in enumerate(zip(arrays["images"], arrays["labels"], strict=True)):
        path = workspace.folder / "photographs" / str(arrays["class_names"][label]) / f"{row:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.transpose(1, 2, 0)).save(path)
    study = "workflow/studies/cifar10-mini.yaml"
    workspace.edit("config.yaml", "study: smoke", "study: cifar10-mini")
    workspace.edit(study, "source: cifar10\n", "source: folder\n  path: photographs\n  test: 0.2\n")
    fetched = workspace.command("fetch")
    sha256 = fetched.stdout.strip().rpartition("sha256: ")[2]
    assert len(sha256) == 64, fetched.stderr
    for old, new in (
        ("path: photographs\n", f"path: photographs\n  sha256: {sha256}\n"),
        ("samples: 2000", "samples: 200"),
        ("samples: 300", "samples: 50"),
        ("samples: 500", "samples: 100"),
        ("epochs: 10", "epochs: 2"),
        ("milestones: [8]", "milestones: [1]"),
        ("steps: 15}}", "steps: 2}}"),
    ):
        workspace.edit(study, old, new)
    workspace.snakemake("results/cifar10-mini/tables/A7.csv")
    table = pd.read_csv(workspace.folder / "results/cifar10-mini/tables/A7.csv")
    assert table["accuracy"].between(0, 100).all()
    assert len(table) == 4
    (reference,) = (workspace.folder / "results/artifacts/data").glob("*.json")
    train = open_dataset(reference, "train")
    assert train.images.shape == (200, 3, 32, 32)
    assert sorted(train.class_names) == sorted(arrays["class_names"].tolist())
    # Each image is the photograph that its source index names, in the sorted order of the folder.
    order = np.argsort([f"{arrays['class_names'][label]}/{row:04d}" for row, label in enumerate(arrays["labels"])])
    np.testing.assert_array_equal(train.images, arrays["images"][order][train.provenance["source_index"]])
