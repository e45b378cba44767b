"""A small made-up study whose tables, figures and claims are there, for tests of its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.files import write_json
from robustfeatures.pipeline.report.building import ViewJob
from robustfeatures.pipeline.store.datasets import write_dataset
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.store.store import Store

IDS = ("A1", "A10", "B1", "A2")
# Experiment, sentence, setting, whether it is a control, verdict.
CLAIMS = [
    ("A1", "claim 0", "", False, "held"),
    ("A1", "claim 1", "L2", False, "held"),
    ("A1", "claim 1", "Linf", False, "undecided"),
    ("A1", "claim 2", "", False, "contradicted"),
    ("A1", "claim 3", "", True, "held"),
    ("A2", "claim 4", "one < two", False, "held"),
    ("B1", "claim 5", "", False, "not tested"),
]
BUILT = {
    "started": "2026-01-02T03:04:05+00:00",
    "seconds": 90.0,
    "computing_seconds": 7200.0,
    "device": "cpu",
    "machine": "x86_64, 2 cores",
    "python": "3.11.2",
    "packages": {"torch": "2.13.0", "numpy": "2.4.6"},
    "git_commit": "0123456789abcdef",
}


def words(experiment: str, name: str = "masked") -> dict[str, dict[str, Any]]:
    """What the table and the figure of an experiment say about themselves."""
    about = {"warnings": [name], "provenance": [f"Seeds of {name}: 0."]}
    sheet = {
        "title": f"Accuracy (%) of {name}:",
        "columns": [{"name": "network", "numeric": False}, {"name": name, "numeric": True}],
        "rows": [["NA", "50.00 ± 1.00"], ["b", "60.00"]],
    }
    shown = {"caption": f"What {experiment} shows: {name}.", "alternative_text": f"{experiment}: bars of {name}."}
    return {"table": {"sheets": [sheet], **about}, "figure": {**shown, **about}}


def claim_rows(claims: Sequence[tuple[str, str, str, bool, str]] = CLAIMS) -> pd.DataFrame:
    """The rows of a claims.csv."""
    rows = [
        {
            "experiment": each,
            "claim": sentence,
            "setting": setting,
            "control": control,
            "verdict": verdict,
            "value": 1.5 + 10 * number,
            "interval": "one network" if each == "A2" else "seeds",
            "threshold": 0.0,
            "quantity": f"q {number}",
            "source": "s",
            "low": None if verdict == "not tested" else -1.0,
            "high": None if verdict == "not tested" else 12.25,
        }
        for number, (each, sentence, setting, control, verdict) in enumerate(claims)
    ]
    return pd.DataFrame(rows)


def write_data(folder: Path) -> dict[str, Any]:
    """A data set in the store of `folder`, its reference and its plan; the reference."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (24, 1, 8, 8), dtype=np.uint8)
    names = tuple(f"class {number}" for number in range(12))
    columns = {"source_index": np.arange(24)}
    split = ImageDataset(pixels, np.arange(24) % 12, columns, names)
    payload = Store(folder / "store").payload("key") / "data.zarr"
    payload.parent.mkdir(parents=True)
    write_dataset(payload, {"train": split, "test": split})
    recipe = {"stage": "data", "label": "dots", "digest": "0" * 16, "family": "dots", "inputs": {}}
    reference = {"key": "key", "content": "c", "stage": "data", "recipe": recipe, "built": BUILT}
    artifacts = Artifacts(folder / "artifacts")
    write_json(artifacts.plan(f"data/dots-{'0' * 16}"), recipe)
    write_json(artifacts.reference(f"data/dots-{'0' * 16}"), reference)
    return reference


def made_up_study(
    folder: Path,
    *,
    said: Mapping[str, Mapping[str, Any]] | None = None,
    figure_size: tuple[int, int] = (2300, 680),
) -> ViewJob:
    """The job of the page of a study in `folder`; `said` are the words of the table and figure of each experiment."""
    study = folder / "study"
    (study / "figures").mkdir(parents=True)
    claim_rows().to_csv(study / "claims.csv", index=False)
    write_data(folder)
    artifacts, views = Artifacts(folder / "artifacts"), []
    for each in IDS:
        Image.effect_noise(figure_size, 40).convert("RGB").save(study / "figures" / f"{each}.png")
        found = (said or {}).get(each, words(each))
        for kind in ("table", "figure") if each == "A1" else ("figure",):
            artifact = f"{kind}/study-{each}-{'0' * 16}"
            needs = [{"row": "D", "seed": 0, "artifact": f"data/dots-{'0' * 16}", "columns": {}}]
            part = {"id": each, "needs": needs, "gates": [], "settings": {}}
            write_json(artifacts.reference(artifact), {"words": found[kind], "recipe": {"parts": [part]}})
            names = {"table": (".csv", ".tex"), "figure": (".png", ".pdf", ".txt")}[kind]
            outputs = [f"study/{kind}s/{each}{suffix}" for suffix in names]
            views.append({"kind": kind, "experiments": [each], "artifact": artifact, "outputs": outputs})
    record = {
        "study": "study",
        "title": "A study",
        "precision": "float32",
        "study_file": "title: A study\nseeds: [0]\n",
        "views": views,
        "parts": [{"id": each, "needs": [], "gates": [], "settings": {}} for each in IDS],
    }
    return ViewJob(record, artifacts, Store(folder / "store"))
