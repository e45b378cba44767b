"""A study on images of one's own: colour photographs in an `.npz` file, from end to end."""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd

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
    assert set(table["probe"]) == {"train", "validation", "non-robust", "robust"}
    assert table["accuracy"].between(0, 100).all()
    # A file that changes is refused, by name, and leaves nothing half-made.
    np.savez(path, images=np.zeros(1))
    workspace.edit("workflow/studies/smoke.yaml", "validation: 0.15", "validation: 0.16")
    done = workspace.snakemake("results/smoke/tables/B1.csv", check=False)
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert any(line.startswith("robustfeatures: data/npz-") and "photographs.npz" in line for line in text.splitlines())
