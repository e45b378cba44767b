"""Exports of damaged data sets, onto full disks, into awkward places, and stopped: one line, nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robustfeatures.data import constructed, folder, npz
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.errors import UserError
from robustfeatures.files import write_json
from robustfeatures.pipeline.store.datasets import read_dataset, write_dataset
from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools import exporting
from robustfeatures.tools.exporting import export
from tests.faults import conftest
from tests.tools.test_exporting import data_set, everything, loaded, stored

mount = conftest.mount
FORMS: tuple[exporting.Format, ...] = ("folder", "npz", "constructed", "huggingface")


def published(tmp_path: Path) -> tuple[Path, Path]:
    """A reference beside a store as results/ holds them, and the payload's data.zarr, which may be written to."""
    store = Store(tmp_path / "store")
    with store.lease("key") as lease:
        write_dataset(lease.fresh / "data.zarr", data_set(np.uint8))
        store.publish(lease, {"content": "content", "built": {}})
    reference = tmp_path / "artifacts" / "data" / "digits-0.json"
    write_json(reference, {"key": "key", "content": "content", "recipe": {}})
    for path in store.payload("key").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return reference, store.payload("key") / "data.zarr"


@pytest.mark.parametrize("form", FORMS)
def test_below_a_file_nothing_can_be_written(tmp_path: Path, form: exporting.Format) -> None:
    reference, _ = published(tmp_path)
    (tmp_path / "file").write_text("a file")
    with pytest.raises(OSError, match=rf"'{tmp_path}/file'$"):
        export(reference, tmp_path / "file" / "out", form)


@pytest.mark.parametrize("form", FORMS)
def test_what_a_reference_stands_for_is_hashed(tmp_path: Path, form: exporting.Format) -> None:
    reference, path = published(tmp_path)
    export(reference, tmp_path / "whole", form)
    shard = path / "train/images/c/0/0/0/0"
    content = bytearray(shard.read_bytes())
    content[7] ^= 1
    shard.write_bytes(content)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError) as caught:
        export(reference, tmp_path / "damaged", form)
    assert str(caught.value).startswith(f"{shard}: damaged; run `robustfeatures verify --repair`, then snakemake again")
    assert sorted(tmp_path.iterdir()) == before


def garble(path: Path) -> None:
    path.write_bytes(b"{" + path.read_bytes()[:10])


def spoil(path: Path) -> None:
    """Change bytes in the middle of the compressed data."""
    content = path.read_bytes()
    path.write_bytes(bytes(20) + content[20:])


def forget_classes(path: Path) -> None:
    path.write_text(path.read_text().replace('"class_names"', '"names"'))


def fewer_classes(path: Path) -> None:
    described = json.loads(path.read_text())
    described["attributes"]["class_names"].pop()
    path.write_text(json.dumps(described))


def chunks_elsewhere(path: Path) -> None:
    text = path.read_text()
    assert '"separator": "/"' in text
    path.write_text(text.replace('"separator": "/"', '"separator": "."'))


def fewer(path: Path) -> None:
    described = json.loads(path.read_text())
    described["shape"] = [60]
    path.write_text(json.dumps(described))


def no_number(path: Path) -> None:
    described = json.loads(path.read_text())
    described["shape"][0] = None
    path.write_text(json.dumps(described))


DAMAGES: tuple[tuple[str, Callable[[Path], None], str], ...] = (
    ("zarr.json", garble, ": not a data set that this package wrote"),
    ("zarr.json", Path.unlink, ": not a data set that this package wrote"),
    ("zarr.json", forget_classes, "/zarr.json: class_names: damaged or missing; they must be a list of names"),
    ("zarr.json", fewer_classes, "/train/labels: damaged: 2 is not among the 2 classes"),
    ("train/zarr.json", garble, "/train: not a data set that this package wrote"),
    ("train/zarr.json", Path.unlink, "/train: not a data set that this package wrote"),
    ("train/images/zarr.json", garble, "/train/images: not an array of images that this package wrote"),
    ("train/images/zarr.json", fewer, "/train/images: damaged: its zarr.json does not describe images"),
    ("train/images/zarr.json", no_number, "/train/images: damaged: its zarr.json does not describe images"),
    ("train/labels", shutil.rmtree, "/train/labels: damaged, or not written by this package"),
    ("train/labels/c/0", garble, "/train/labels: damaged, or not written by this package"),
    ("train/labels/c/0", spoil, "/train/labels: damaged, or not written by this package"),
    ("train/labels/c/0", Path.unlink, "/train/labels/c/0: there is no such file"),
    ("train/labels/zarr.json", garble, "/train/labels: damaged, or not written by this package"),
    ("train/labels/zarr.json", Path.unlink, "/train/labels: damaged, or not written by this package"),
    ("train/labels/zarr.json", chunks_elsewhere, "/train/labels/c.0: there is no such file"),
    ("train/labels/zarr.json", fewer, "/train/labels: damaged: int64 (60,), not an integer for each of 61 images"),
    ("train/source_index", shutil.rmtree, "/train/source_index: there is no such array; every data set has one"),
    ("train/source_index/c/0", spoil, "/train/source_index: damaged, or not written by this package"),
    ("train/source_index/zarr.json", Path.unlink, "/train/source_index: damaged, or not written by this package"),
    ("train/target/zarr.json", Path.unlink, "/train/target: damaged, or not written by this package"),
)


@pytest.mark.parametrize(("name", "damage", "expected"), DAMAGES)
def test_a_damaged_data_set_is_named(tmp_path: Path, name: str, damage: Callable[[Path], None], expected: str) -> None:
    path = stored(tmp_path, data_set(np.uint8))
    damage(path / name)
    with pytest.raises(UserError) as caught:
        export(path, tmp_path / "out", "folder")
    assert str(caught.value) == f"{path}{expected}"
    if name != "train/source_index":
        with pytest.raises(UserError) as caught:
            read_dataset(path, "train")
        assert str(caught.value) == f"{path}{expected}"
    assert [child.name for child in tmp_path.iterdir()] == ["payload"]


def test_no_split_of_a_data_set(tmp_path: Path) -> None:
    path = stored(tmp_path, {"other": data_set(np.uint8)["train"]})
    with pytest.raises(UserError, match=r"data\.zarr: has none of the splits train, validation, test$"):
        export(path, tmp_path / "out", "npz")


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run in a process of its own, which a signal may end."""
    line = [sys.executable, "-m", "robustfeatures", "export", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False)


# The bytes left on the disk; of tensors the last ones are used up by the images behind their buffer.
@pytest.mark.parametrize(
    ("form", "rooms"), [("folder", (0, 200_000)), ("npz", (0, 200_000)), ("constructed", (0, 1_000_000, 3_000_000))]
)
def test_a_full_disk(tmp_path: Path, mount: conftest.Mount, form: str, rooms: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).integers(0, 256, (600, 3, 16, 16), dtype=np.uint8)
    train = ImageDataset(images, np.arange(600) % 3, {"source_index": np.arange(600)}, ("a", "b", "c"))
    path, disk = stored(tmp_path, {"train": train}), tmp_path / "disk"
    disk.mkdir()
    mount(disk, "-t", "tmpfs", "-o", "size=5m", "tmpfs")
    for room in rooms:
        filler = disk / "filler"
        filler.write_bytes(b"x" * (shutil.disk_usage(disk).free - room))
        done = command(path, disk / "out", "--format", form)
        assert done.returncode == 1, (room, done.returncode, done.stderr)
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"robustfeatures: {disk}/out")
        assert line.endswith(": No space left on device")
        assert [child.name for child in disk.iterdir()] == ["filler"]
        filler.unlink()
    done = command(path, disk / "out", "--format", form)
    assert done.returncode == 0, done.stderr


def test_tensors_that_torch_cannot_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos\n 3 vs 2")

    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(OSError, match="unexpected pos 3 vs 2") as caught:
        export(stored(tmp_path, data_set(np.uint8)), tmp_path / "out", "constructed")
    assert caught.value.filename == str(tmp_path / "out/train/CIFAR_ims")
    assert "torch could not write it" in caught.value.strerror
    assert [child.name for child in tmp_path.iterdir()] == ["payload"]


@pytest.mark.parametrize("form", ["folder", "constructed"])
@pytest.mark.parametrize("place", ["here", "link"])
def test_an_empty_folder_stays_the_same_one(
    tmp_path: Path, form: exporting.Format, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = data_set(np.uint8)
    path, empty = stored(tmp_path, splits), tmp_path / "empty"
    empty.mkdir()
    if place == "here":
        out = Path()
        monkeypatch.chdir(empty)
    else:
        out = tmp_path / "link"
        out.symlink_to(empty)
    before = empty.stat().st_ino
    said = export(path, out, form)
    assert said[0].startswith(f"{out}: 61 images of train")
    assert (empty.stat().st_ino, out.is_symlink()) == (before, place == "link")
    assert sorted(os.listdir(out)) == sorted(splits)  # noqa: PTH208  # the folder that a shell is in, not its path
    if form == "constructed":
        assert sorted(child.name for child in (empty / "test").iterdir()) == ["CIFAR_ims", "CIFAR_lab"]
    else:
        np.testing.assert_array_equal(np.sort(loaded(folder, empty)["test"].labels), np.sort(splits["test"].labels))
    with pytest.raises(UserError, match="exists already; give another name"):
        export(path, out, form)


# What writes part of each format, with the signal behind its first part.
STOPPED = """
import os, signal, sys
from robustfeatures import cli
from robustfeatures.tools import exporting
name = sys.argv.pop(1)
original = getattr(exporting, name)
def stopped(*arguments):
    original(*arguments)
    assert any(path.startswith(".out.") for path in os.listdir())
    os.kill(os.getpid(), signal.SIGTERM)
setattr(exporting, name, stopped)
cli.main()
"""


@pytest.mark.parametrize(
    ("form", "part"), [("folder", "_write_split"), ("npz", "_write_array"), ("constructed", "_save_tensors")]
)
def test_a_request_to_end(tmp_path: Path, form: str, part: str) -> None:
    stored(tmp_path, data_set(np.uint8))
    arguments = [sys.executable, "-c", STOPPED, part, "export", "payload/data.zarr", "out", "--format", form]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line == "robustfeatures: stopped by SIGTERM, and what was half-written is removed; run again"
    assert [child.name for child in tmp_path.iterdir()] == ["payload"]


def without(splits: Mapping[str, ImageDataset], label: int) -> dict[str, ImageDataset]:
    """The splits with no image of a class in `test`."""
    test = splits["test"]
    return {**splits, "test": replace(test, labels=np.where(test.labels == label, 1, test.labels))}


@pytest.mark.parametrize("label", [0, 2])
def test_npz_says_that_a_class_has_no_image(tmp_path: Path, label: int) -> None:
    splits = without(data_set(np.uint8), label)
    said = export(stored(tmp_path, splits), tmp_path / "all.npz", "npz")
    name = splits["test"].class_names[label]
    assert said[1:] == [f"test: the class {name!r} has no image; the source 'npz' refuses that"]
    with pytest.raises(UserError, match=rf"test: labels: class {label} .* has no image"):
        loaded(npz, tmp_path / "all.npz")


def test_tensors_say_that_a_class_has_no_image(tmp_path: Path) -> None:
    said = export(stored(tmp_path, without(data_set(np.uint8), 0)), tmp_path / "out", "constructed")
    assert "test: the class '10' has no image; the source 'constructed' refuses that" in said
    assert not any("counts" in line for line in said)
    with pytest.raises(UserError, match=r"class 0 .* has no image"):
        loaded(constructed, tmp_path / "out/test")


def test_tensors_say_that_the_last_class_is_not_counted(tmp_path: Path) -> None:
    said = export(stored(tmp_path, without(data_set(np.uint8), 2)), tmp_path / "out", "constructed")
    assert "test: the source 'constructed' counts 2 of the 3 classes" in said
    assert not any("refuses" in line for line in said)
    assert loaded(constructed, tmp_path / "out/test")["all"].class_names == ("0", "1")


@pytest.mark.parametrize("split", [None, "test"])
def test_tensors_say_which_path_the_source_reads(tmp_path: Path, split: str | None) -> None:
    splits, out = data_set(np.float32), tmp_path / "out"
    said = export(stored(tmp_path, splits), out, "constructed", split=split)
    (line,) = [line for line in said if "path: " in line]
    places = line.partition("path: ")[2].partition(", as one pool, which needs a share 'test'")[0].split(" or ")
    assert places == ([str(out / name) for name in splits] if split is None else [str(out)])
    for place, name in zip(places, splits if split is None else [split], strict=True):
        np.testing.assert_array_equal(everything(loaded(constructed, Path(place))["all"]), splits[name].images)
    if split is None:
        with pytest.raises(UserError, match="0 pairs of files"):
            loaded(constructed, out)


def test_a_folder_with_the_name_of_a_label_does_not_hide_it(tmp_path: Path) -> None:
    reference, _ = published(tmp_path / "results")
    reference.rename(reference.with_name(f"digits-{'0' * 16}.json"))
    (tmp_path / "data" / "digits").mkdir(parents=True)
    (tmp_path / "data" / "letters").mkdir()

    def command(label: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "robustfeatures", "export", label, "out.npz", "--format", "npz"]
        return subprocess.run(
            [*line, "--store", "results/store"], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    done = command("data/digits")
    assert done.stdout.startswith("out.npz: 61 images of train"), done.stderr
    refused = command("data/letters").stderr
    assert refused.startswith("robustfeatures: data/letters: there is no artifact with this label")
    assert refused.endswith("; the folder of this name holds no data.zarr\n")
