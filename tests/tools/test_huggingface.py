"""Exported parquet files and their card, read by the `datasets` library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.pipeline.store.datasets import read_dataset, write_dataset
from robustfeatures.tools.exporting import export
from tests.conftest import REPOSITORY, Workspace
from tests.tools.test_exporting import CLASSES, SIZES, data_set, stored

pytest.importorskip("pyarrow")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is looked up in the network, and nothing is left in the user's cache."""
    monkeypatch.setattr("robustfeatures.data.pixels.BLOCK_BYTES", 7 * 3 * 6 * 5 * 4)
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_library_reads_what_was_written(tmp_path: Path, dtype: type, channels: int) -> None:
    from datasets import ClassLabel, Image, load_dataset

    splits = data_set(dtype, channels)
    out = tmp_path / "out"
    said = export(stored(tmp_path, splits), out, "huggingface")
    assert said[0] == f"{out}: 61 images of train, 20 images of validation, 30 images of test"
    assert len(said) == (1 if dtype == np.uint8 else 2)
    found = load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows) for split, rows in found.items()} == SIZES
    for split, dataset in splits.items():
        rows = found[split]
        assert rows.features["image"] == Image()
        assert rows.features["label"] == ClassLabel(names=list(CLASSES))
        images = np.stack([np.asarray(image) for image in rows["image"]])
        images = images[:, None] if channels == 1 else images.transpose(0, 3, 1, 2)
        whole = dataset.images if dtype == np.uint8 else np.rint(dataset.images * 255)
        np.testing.assert_array_equal(images, whole)
        np.testing.assert_array_equal(rows["label"], dataset.labels)
        for name, values in dataset.provenance.items():
            np.testing.assert_array_equal(rows[name], values)


def test_one_split(tmp_path: Path) -> None:
    from datasets import load_dataset

    export(stored(tmp_path, data_set(np.uint8)), tmp_path / "out", "huggingface", split="validation")
    assert load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"), split="validation").num_rows == 20


def test_awkward_class_names(tmp_path: Path) -> None:
    from datasets import load_dataset

    names = ("yes", "0x1", "a: b", "'quoted' \"twice\"", "# no comment", "ß ç 猫")
    images = np.zeros((6, 3, 4, 4), np.uint8)
    index = np.arange(6)
    write_dataset(tmp_path / "data.zarr", {"train": ImageDataset(images, index, {"source_index": index}, names)})
    export(tmp_path / "data.zarr", tmp_path / "out", "huggingface")
    found = load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"), split="train")
    assert found.features["label"].names == list(names)


def test_the_card_of_a_derived_set(smoke: Workspace, tmp_path: Path) -> None:
    """The library parses its head; its text has the recipe, the accuracies of the source, the licence, the command."""
    from datasets import load_dataset
    from huggingface_hub import DatasetCard

    (reference,) = (smoke.folder / "results/artifacts/derived").glob("digits-D_R-images-seed0-*.json")
    out = tmp_path / "out"
    said = export(reference, out, "huggingface")
    assert said[1].startswith("images were rounded to 8 bits")
    card = DatasetCard.load(out / "README.md")
    assert card.data.license == "cc-by-4.0"
    assert [one["split"] for one in card.data.configs[0]["data_files"]] == ["train"]
    info = card.data.dataset_info
    found = load_dataset(str(out), cache_dir=str(tmp_path / "cache"), split="train")
    assert info["splits"] == [
        {
            "name": "train",
            "num_bytes": (out / "data/train-00000-of-00001.parquet").stat().st_size,
            "num_examples": len(found),
        }
    ]
    assert [one["name"] for one in info["features"]] == list(found.features)
    dataset = read_dataset(smoke.store / json.loads(reference.read_text())["key"] / "data.zarr", "train")
    assert card.text.startswith("\n# digits-D_R-images-seed0\n") or card.text.startswith("# digits-D_R-images-seed0\n")
    assert list(dataset.provenance) == list(found.features)[2:]
    assert "- Network digits-adversarial: small-cnn" in card.text
    assert "- Derived set digits-D_R-images: method (inversion, start images, step size 0.1, steps 5)" in card.text
    rows = next((smoke.folder / "results/artifacts/evaluation").glob("digits-adversarial-test-seed0-*.json"))
    table = (smoke.store / json.loads(rows.read_text())["key"] / "rows.csv").read_text().splitlines()
    correct, total = next(line.split(",")[4:6] for line in table if line.startswith("accuracy,0,0.0,0,"))
    assert f"{100 * int(correct) / int(total):.1f} % without an attack" in card.text
    assert "- digits: CC BY 4.0 (Optical Recognition of Handwritten Digits" in card.text
    name = f"{reference.parent.name}/{reference.stem}"
    assert f"--config study=smoke seeds_per_job=1 rows_per_job=1 -- results/artifacts/{name}.json" in card.text


def test_the_command_of_the_card(smoke: Workspace, workspace: Workspace, tmp_path: Path) -> None:
    """What the card says plans exactly this artifact in a fresh clone."""
    (reference,) = (smoke.folder / "results/artifacts/data").glob("*.json")
    export(reference, tmp_path / "out", "huggingface")
    text = (tmp_path / "out/README.md").read_text()
    command = next(line for line in text.splitlines() if line.startswith("snakemake "))
    workspace.edit("config.yaml", "study: smoke", "study: digits")
    workspace.snakemake(*command.split()[3:])
    made = json.loads((workspace.folder / command.split()[-1]).read_text())
    assert made["content"] == json.loads(reference.read_text())["content"]


def test_the_head_is_yaml(tmp_path: Path) -> None:
    export(stored(tmp_path, data_set(np.uint8)), tmp_path / "out", "huggingface")
    _, head, text = (tmp_path / "out/README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(head)["license"] == "other"
    assert "how they were made is not known here" in text


def test_without_pyarrow(tmp_path: Path) -> None:
    path = stored(tmp_path, data_set(np.uint8))
    (tmp_path / "without").mkdir()
    (tmp_path / "without/pyarrow.py").write_text("raise ImportError('is not installed here')")
    done = subprocess.run(
        [sys.executable, "-m", "robustfeatures", "export", str(path), "out", "--format", "huggingface"],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path / 'without'}:{REPOSITORY / 'src'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == ("robustfeatures: --format huggingface: needs `pip install 'robustfeatures[huggingface]'`\n")
    assert not (tmp_path / "out").exists()
