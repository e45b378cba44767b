"""Data sets on disk: reading returns exactly what was written, or an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.errors import UserError
from robustfeatures.pipeline.store.content import content_digest
from robustfeatures.pipeline.store.datasets import list_splits, read_dataset, write_dataset


def test_a_data_set_comes_back_as_it_was_written(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    count = 2500
    written = ImageDataset(
        images=generator.random((count, 3, 16, 16), dtype=np.float32),
        labels=generator.integers(0, 3, count),
        provenance={
            name: generator.integers(-1, 9, count) for name in ("source_index", "source_label", "start_index", "target")
        },
        class_names=("a", "<b>", "ç"),
    )
    path = tmp_path / "data.zarr"
    write_dataset(path, {"train": written, "validation": written})
    assert list_splits(path) == ("train", "validation")
    read = read_dataset(path, "validation")
    np.testing.assert_array_equal(read.images, written.images)
    np.testing.assert_array_equal(read.labels, written.labels)
    assert read.class_names == written.class_names
    assert list(read.provenance) == list(written.provenance)
    for name, column in written.provenance.items():
        np.testing.assert_array_equal(read.provenance[name], column)
    # Chunks of about a megabyte would be eight files a split; shards make it one.
    assert sum(file.is_file() for file in (path / "train" / "images").rglob("c/**/*")) == 1
    with pytest.raises(UserError, match=r"no split 'tests'"):
        read_dataset(path, "tests")


def test_statistics_are_written_once_and_are_those_of_the_images(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((300, 3, 8, 8), dtype=np.float32)
    written = ImageDataset(images, np.zeros(300, np.int64), {}, ("a",))
    path = tmp_path / "data.zarr"
    write_dataset(path, {"train": written, "test": written})
    read = read_dataset(path, "train", in_memory=False)
    assert read.statistics is not None
    for found, expected in zip(read.channel_statistics(), written.channel_statistics(), strict=True):
        # To the bit, because the weights of a network follow from them.
        np.testing.assert_array_equal(found, expected)
    assert read_dataset(path, "test").statistics is None


def test_statistics_change_no_content_digest_and_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "data.zarr"
    written = ImageDataset(np.zeros((4, 3, 2, 2), np.uint8), np.zeros(4, np.int64), {}, ("a",))
    write_dataset(path, {"train": written})
    digest = content_digest(path)
    group = zarr.open_group(path / "train")
    group.attrs["channel_statistics"] = {"mean": [0.5], "std": [0.5]}
    with pytest.raises(UserError, match=r"train/zarr\.json: damaged: channel_statistics"):
        read_dataset(path, "train")
    del group.attrs["channel_statistics"]
    assert content_digest(path) == digest
    assert read_dataset(path, "train").statistics is None


def test_images_out_of_range_are_not_written(tmp_path: Path) -> None:
    images = np.full((4, 1, 2, 2), 1.5, np.float32)
    with pytest.raises(UserError, match=r"images: split train: values from 1\.5 to 1\.5, not in \[0, 1\]"):
        write_dataset(tmp_path / "data.zarr", {"train": ImageDataset(images, np.zeros(4, np.int64), {}, ("a",))})


@pytest.mark.parametrize("damage", ["short", "a few bytes", "index", "compressed"])
def test_images_that_are_not_as_they_were_written(tmp_path: Path, damage: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4000, 3, 16, 16), dtype=np.uint8)
    write_dataset(tmp_path / "data.zarr", {"train": ImageDataset(images, np.zeros(4000, np.int64), {}, ("a",))})
    array = tmp_path / "data.zarr" / "train" / "images"
    (shard,) = (array / "c").rglob("0/0/0/0")
    content = shard.read_bytes()
    if damage == "short":
        shard.write_bytes(content[:-100])
    elif damage == "a few bytes":
        shard.write_bytes(content[:13])
    elif damage == "index":
        shard.write_bytes(content[:-20] + bytes(20))
    else:
        described = (array / "zarr.json").read_text()
        (array / "zarr.json").write_text(described.replace('"name": "bytes"', '"name": "zstd"', 1))
    expected = "the images are compressed" if damage == "compressed" else "damaged: its index does not list the rows"
    with pytest.raises(UserError, match=expected):
        read_dataset(tmp_path / "data.zarr", "train")
