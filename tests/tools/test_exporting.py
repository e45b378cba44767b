"""Exported data sets, read again by the sources of the user's own files: bit for bit, or with the stated losses."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from robustfeatures.data import constructed, folder, npz
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.raw import RawData
from robustfeatures.data.settings import Data
from robustfeatures.errors import UserError
from robustfeatures.pipeline.store.datasets import write_dataset
from robustfeatures.tools import exporting
from robustfeatures.tools.exporting import export

CLASSES = ("10", "9", "cat ç")
SIZES = {"train": 61, "validation": 20, "test": 30}


def data_set(dtype: type, channels: int = 3) -> dict[str, ImageDataset]:
    generator = np.random.default_rng(0)
    splits = {}
    for split, count in SIZES.items():
        images = generator.random((count, channels, 6, 5), dtype=np.float32)
        splits[split] = ImageDataset(
            images=np.rint(images * 255).astype(np.uint8) if dtype == np.uint8 else images,
            labels=generator.permutation(np.arange(count) % 3),
            provenance={
                "source_index": generator.choice(1000, count, replace=False),
                "target": generator.integers(-1, 3, count),
            },
            class_names=CLASSES,
        )
    return splits


def stored(tmp_path: Path, splits: Mapping[str, ImageDataset]) -> Path:
    path = tmp_path / "payload" / "data.zarr"
    path.parent.mkdir()
    write_dataset(path, splits)
    return path


def loaded(module: ModuleType, path: Path) -> dict[str, RawData]:
    wanted = Data(source=module.__name__.rpartition(".")[2], path=str(path))
    return module.load(replace(wanted, sha256=module.compute_digest(wanted)), Path("unused"))


def everything(raw: RawData) -> np.ndarray:
    return raw.images[np.arange(len(raw.labels))]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks for each split; the last one is shorter."""
    monkeypatch.setattr("robustfeatures.data.pixels.BLOCK_BYTES", 7 * 3 * 6 * 5 * 4)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3])
def test_npz_loses_nothing(tmp_path: Path, dtype: type, channels: int) -> None:
    splits = data_set(dtype, channels)
    out = tmp_path / "new" / "all.npz"
    said = export(stored(tmp_path, splits), out, "npz")
    assert said == [f"{out}: 61 images of train, 20 images of validation, 30 images of test"]
    raw = loaded(npz, out)
    assert list(raw) == list(splits)
    for split, dataset in splits.items():
        assert raw[split].class_names == CLASSES
        assert raw[split].images.dtype == dtype
        np.testing.assert_array_equal(everything(raw[split]), dataset.images)
        np.testing.assert_array_equal(raw[split].labels, dataset.labels)
    with np.load(out) as arrays:
        for split, dataset in splits.items():
            for name, column in dataset.provenance.items():
                np.testing.assert_array_equal(arrays[f"{split}_{name}"], column)


def test_one_split_of_an_npz_is_a_pool(tmp_path: Path) -> None:
    splits = data_set(np.uint8)
    out = tmp_path / "test.npz"
    export(stored(tmp_path, splits).parent, out, "npz", split="test")
    raw = loaded(npz, out)
    assert list(raw) == ["all"]
    np.testing.assert_array_equal(everything(raw["all"]), splits["test"].images)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_tensors_keep_every_bit_of_float_images(tmp_path: Path, dtype: type) -> None:
    splits = data_set(dtype)
    out = tmp_path / "d_robust"
    said = export(stored(tmp_path, splits), out, "constructed")
    assert "this layout keeps no class names and no provenance" in said
    assert ("images became float32, the grey levels divided by 255" in said) == (dtype == np.uint8)
    for split, dataset in splits.items():
        assert sorted(path.name for path in (out / split).iterdir()) == ["CIFAR_ims", "CIFAR_lab"]
        raw = loaded(constructed, out / split)["all"]
        # As the README of the published data sets reads them.
        images = torch.cat(torch.load(out / split / "CIFAR_ims"))
        labels = torch.cat(torch.load(out / split / "CIFAR_lab"))
        for found in (everything(raw), images.numpy()):
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, dataset.float_images())
            if dtype == np.uint8:
                np.testing.assert_array_equal(np.rint(found * 255).astype(np.uint8), dataset.images)
        for numbers in (raw.labels, labels.numpy()):
            np.testing.assert_array_equal(numbers, dataset.labels)


def test_one_split_of_tensors_lies_in_the_folder_itself(tmp_path: Path) -> None:
    splits = data_set(np.float32)
    (tmp_path / "CIFAR").mkdir()
    export(stored(tmp_path, splits), tmp_path / "CIFAR", "constructed", split="train")
    assert sorted(path.name for path in (tmp_path / "CIFAR").iterdir()) == ["CIFAR_ims", "CIFAR_lab"]
    np.testing.assert_array_equal(everything(loaded(constructed, tmp_path / "CIFAR")["all"]), splits["train"].images)


@pytest.mark.parametrize("channels", [1, 3])
def test_folders_keep_every_bit_of_uint8(tmp_path: Path, channels: int) -> None:
    splits = data_set(np.uint8, channels)
    out = tmp_path / "images"
    said = export(stored(tmp_path, splits), out, "folder")
    assert not any("rounded" in line for line in said)
    assert sum("sorted by class" in line for line in said) == 1
    raw = loaded(folder, out)
    assert list(raw) == list(splits)
    for split, dataset in splits.items():
        index = dataset.provenance["source_index"]
        order = np.lexsort((index, dataset.labels))
        assert raw[split].class_names == CLASSES
        np.testing.assert_array_equal(everything(raw[split]), dataset.images[order])
        np.testing.assert_array_equal(raw[split].labels, dataset.labels[order])
        names = [f"{CLASSES[dataset.labels[row]]}/{index[row]:03d}.png" for row in order]
        assert list(raw[split].names or ()) == names
        with Image.open(out / split / names[4]) as image:
            pixels = np.atleast_3d(np.asarray(image)).transpose(2, 0, 1)
        np.testing.assert_array_equal(pixels, dataset.images[order[4]])


def test_folders_round_floats_and_say_by_how_much(tmp_path: Path) -> None:
    splits = data_set(np.float32)
    said = export(stored(tmp_path, splits), tmp_path / "images", "folder")
    line = next(line for line in said if "rounded" in line)
    found = float(re.findall(r"0\.\d+", line)[0])
    changes = []
    raw = loaded(folder, tmp_path / "images")
    for split, dataset in splits.items():
        order = np.lexsort((dataset.provenance["source_index"], dataset.labels))
        changes.append(np.abs(everything(raw[split]) / 255 - dataset.images[order]).max())
    assert max(changes) <= 1 / 510 + 1e-7
    assert found == pytest.approx(max(changes), abs=1e-6)


def test_folders_say_that_classes_are_numbered_anew(tmp_path: Path) -> None:
    splits = {name: replace(one, class_names=("odd", "even", "none")) for name, one in data_set(np.uint8).items()}
    splits["test"] = replace(splits["test"], labels=np.zeros(30, np.int64))
    said = export(stored(tmp_path, splits), tmp_path / "images", "folder")
    assert any("numbered by their sorted names" in line for line in said)
    assert "test: the class 'even' has no image; the source 'folder' refuses that" in said


def test_images_that_share_a_source_index_are_all_written(tmp_path: Path) -> None:
    train = data_set(np.uint8)["train"]
    train = replace(train, provenance={"source_index": np.zeros(61, np.int64)})
    export(stored(tmp_path, {"train": train}), tmp_path / "images", "folder")
    raw = loaded(folder, tmp_path / "images")["train"]
    np.testing.assert_array_equal(everything(raw), train.images[np.argsort(train.labels, kind="stable")])


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "a\\b", "", "CAT Ç"])
def test_class_names_that_cannot_be_folders(tmp_path: Path, name: str) -> None:
    splits = {"train": replace(data_set(np.uint8)["train"], class_names=("cat ç", "9", name))}
    path = stored(tmp_path, splits)
    with pytest.raises(
        UserError, match=r"^class .*: (cannot be the name of a folder|another class folder has this nam)"
    ):
        export(path, tmp_path / "images", "folder")
    assert sorted(child.name for child in tmp_path.iterdir()) == ["payload"]
    export(path, tmp_path / "all.npz", "npz", split="train")
    assert loaded(npz, tmp_path / "all.npz")["all"].class_names[2] == name


@pytest.mark.parametrize("form", ["folder", "npz", "constructed"])
def test_nothing_is_overwritten_or_left_half_written(
    tmp_path: Path, form: exporting.Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(tmp_path, data_set(np.uint8))
    for name in ("file", "full/file"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    for out in (tmp_path / "file", tmp_path / "full"):
        with pytest.raises(UserError, match=rf"^{out}: exists already; give another name$"):
            export(path, out, form)
    with pytest.raises(UserError, match=r"has no split 'tests' \(did you mean 'test'\?\)$"):
        export(path, tmp_path / "out", form, split="tests")
    with pytest.raises(UserError, match=r"none/data\.zarr: there is no such file$"):
        export(tmp_path / "none", tmp_path / "out", form)

    calls = []

    def fails(self: ImageDataset, rows: object = None) -> None:
        calls.append(rows)
        raise OSError("No space left on device")

    monkeypatch.setattr("robustfeatures.pipeline.store.stored_images.StoredImages.__getitem__", fails)
    with pytest.raises(OSError, match="No space"):
        export(path, tmp_path / "out", form)
    assert calls
    assert sorted(child.name for child in tmp_path.iterdir()) == ["file", "full", "payload"]


@pytest.mark.parametrize("form", ["folder", "npz", "constructed"])
def test_images_are_read_in_blocks(tmp_path: Path, form: exporting.Format, monkeypatch: pytest.MonkeyPatch) -> None:
    from robustfeatures.pipeline.store.stored_images import StoredImages

    path = stored(tmp_path, data_set(np.float32))
    original, most = StoredImages.__getitem__, []

    def watched(self: StoredImages, rows: np.ndarray) -> np.ndarray:
        most.append(len(rows))
        return original(self, rows)

    monkeypatch.setattr(StoredImages, "__getitem__", watched)
    export(path, tmp_path / "out", form)
    assert sum(most) == sum(SIZES.values())
    assert max(most) == 7


def test_the_command(tmp_path: Path) -> None:
    path = stored(tmp_path, data_set(np.float32))
    command = [sys.executable, "-m", "robustfeatures", "export", str(path), "images", "--format", "folder"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "images: 61 images of train, 20 images of validation, 30 images of test"
    assert "images were rounded to 8 bits; the largest change of a pixel is 0.00196" in done.stdout
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert again.stderr == "robustfeatures: images: exists already; give another name\n"
