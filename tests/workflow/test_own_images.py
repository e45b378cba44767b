"""A study on images of one's own: colour photographs in an `.npz` file, from end to end."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import REPOSITORY, Workspace

CIFAR10 = REPOSITORY.parent / "shared" / "data" / "cifar10" / "test.zip"
PER_CLASS = 30


def real_photographs() -> dict[str, np.ndarray]:
    """The first images of each class of CIFAR-10's test set."""
    import io
    import zipfile

    from PIL import Image

    if not CIFAR10.exists():
        pytest.skip("CIFAR-10 is not here")
    images, labels, names = [], [], []
    with zipfile.ZipFile(CIFAR10) as archive:
        members = sorted(name for name in archive.namelist() if name.endswith(".webp"))
        for member in members:
            name = Path(member).parent.name
            if name not in names:
                names.append(name)
            if labels.count(names.index(name)) < PER_CLASS:
                picture = np.asarray(Image.open(io.BytesIO(archive.read(member))).convert("RGB"))
                images.append(picture.transpose(2, 0, 1))
                labels.append(names.index(name))
    return {"images": np.stack(images), "labels": np.array(labels), "class_names": np.array(names)}


def test_colour_photographs(workspace: Workspace) -> None:
    path = workspace.folder / "photographs.npz"
    np.savez(path, **real_photographs())
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    source = f"source: npz\n  path: photographs.npz\n  sha256: {sha256}"
    workspace.edit("workflow/studies/smoke.yaml", "source: digits", source)
    workspace.snakemake("results/smoke/tables/B1.csv", "results/smoke/figures/A10.png")
    table = pd.read_csv(workspace.folder / "results/smoke/tables/B1.csv")
    assert set(table["probe"]) == {"train", "validation", "non-robust", "robust"}
    assert table["accuracy"].between(0, 100).all()
    # A file that changes is refused, by name, and leaves nothing half-made.
    np.savez(path, images=np.zeros(1))
    workspace.edit("workflow/studies/smoke.yaml", "validation: 0.15", "validation: 0.16")
    done = workspace.snakemake("results/smoke/tables/B1.csv", check=False)
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert any(line.startswith("robustfeatures: data/npz-") and "photographs.npz" in line for line in text.splitlines())
