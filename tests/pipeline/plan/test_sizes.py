"""The number of images that planning counts, compared with the images that the study then reads."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from robustfeatures.data.constructed import compute_digest as digest_of_constructed
from robustfeatures.data.folder import compute_digest as digest_of_folder
from robustfeatures.data.npz import compute_digest as digest_of_npz
from robustfeatures.data.preparation import prepare_splits
from robustfeatures.data.settings import Concatenate, Data, KeepListed, KeepNamed, Subset
from robustfeatures.pipeline.plan.sizes import data_size

SHARES = {"test": 0.2, "validation": 0.15}


def photographs(folder: Path, counts: Mapping[str, int], mode: str = "RGB", size: tuple[int, int] = (9, 7)) -> Data:
    """A folder with `counts` images in each class folder, by default of 9 x 7 pixels (width, height)."""
    for place, count in counts.items():
        (folder / place).mkdir(parents=True)
        for number in range(count):
            Image.new(mode, size, number).save(folder / place / f"{'even' if number % 2 == 0 else 'odd'}-{number}.png")
    data = Data(source="folder", path=str(folder))
    return replace(data, sha256=digest_of_folder(data))


def npz(path: Path, arrays: Mapping[str, Any]) -> Data:
    np.savez_compressed(path, **arrays)
    data = Data(source="npz", path=str(path))
    return replace(data, sha256=digest_of_npz(data))


def constructed(folder: Path, images: object, labels: object, **options: bool) -> Data:
    folder.mkdir()
    torch.save(images, folder / "set_ims", **options)
    torch.save(labels, folder / "set_lab", **options)
    data = Data(source="constructed", path=str(folder))
    return replace(data, sha256=digest_of_constructed(data))


def assert_right(data: Data) -> None:
    """Counting and reading give the same splits, numbers and shapes."""
    size = data_size(data)
    assert size is not None
    parts = prepare_splits(data, Path())
    assert size.images == {split: len(part.labels) for split, part in parts.items()}
    assert {size.shape} == {part.images.shape[1:] for part in parts.values()}


def test_folders(tmp_path: Path) -> None:
    pool = photographs(tmp_path / "pool", {"a": 30, "b": 13})
    assert_right(replace(pool, **SHARES))
    assert_right(replace(pool, size=16, **SHARES))
    splits = {"train/a": 5, "train/b": 6, "val/a": 3, "val/b": 1, "test/a": 2, "test/b": 2}
    assert_right(photographs(tmp_path / "splits", splits, mode="L"))


def test_an_unreadable_first_image_is_passed_over(tmp_path: Path) -> None:
    photographs(tmp_path / "some", {"a": 30, "b": 30})
    (tmp_path / "some" / "a" / "even-0.png").write_bytes(b"no image")
    size = data_size(Data(source="folder", path=str(tmp_path / "some"), skip_unreadable=True, test=0.5))
    assert size is not None
    assert (size.images, size.shape) == ({"train": 30, "test": 30}, (3, 7, 9))


def test_npz_files(tmp_path: Path) -> None:
    images, labels = np.zeros((40, 3, 6, 5), np.uint8), np.arange(40) % 2
    assert_right(replace(npz(tmp_path / "pool.npz", {"images": images, "labels": labels}), **SHARES))
    splits = {
        f"{name}_{kind}": array[:count]
        for name, count in (("train", 40), ("valid", 12))
        for kind, array in (("images", images), ("labels", labels))
    }
    assert_right(replace(npz(tmp_path / "splits.npz", splits), test=0.25))


@pytest.mark.parametrize("share", [0.07, 0.14, 0.28, 0.55, 0.56])
def test_a_share_whose_product_is_just_above_a_whole_number(tmp_path: Path, share: float) -> None:
    """0.55 * 100 is 55.00000000000001 in floating point."""
    pool = npz(tmp_path / "pool.npz", {"images": np.zeros((100, 1, 4, 4), np.uint8), "labels": np.arange(100) % 2})
    assert share * 100 > round(share * 100)
    assert_right(replace(pool, test=share))


def test_an_npz_file_is_counted_without_reading_its_images(tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    np.savez(path, labels=np.arange(40) % 2, images=np.zeros((40, 3, 64, 64), np.uint8))
    # Only the header of the images is left; the list of members is unchanged.
    whole = path.read_bytes()
    start, end = whole.index(b"(40, 3, 64, 64)") + 200, whole.rindex(b"PK\x01\x02") - 200
    path.write_bytes(whole[:start] + os.urandom(end - start) + whole[end:])
    size = data_size(Data(source="npz", path=str(path), test=0.5))
    assert size is not None
    assert (size.images, size.shape) == ({"train": 20, "test": 20}, (3, 64, 64))


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}])
def test_constructed_sets(tmp_path: Path, options: dict[str, bool]) -> None:
    images, labels = torch.rand(40, 3, 6, 5), torch.arange(40) % 2
    assert_right(replace(constructed(tmp_path / "one", images, labels, **options), **SHARES))
    lists = [list(torch.split(values, 16)) for values in (images, labels)]
    assert_right(replace(constructed(tmp_path / "lists", *lists, **options), **SHARES))


class Payload:
    """An object that creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}])
def test_counting_runs_no_code_of_a_file(tmp_path: Path, options: dict[str, bool]) -> None:
    folder, marker = tmp_path / "set", tmp_path / "marker"
    folder.mkdir()
    for name in ("set_ims", "set_lab"):
        torch.save(Payload(marker), folder / name, **options)
    assert data_size(Data(source="constructed", path=str(folder), test=0.5)) is None
    assert not marker.exists()


def test_what_cannot_be_counted(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.npz").write_bytes(b"")
    for source, name in (("folder", "empty"), ("constructed", "empty"), ("npz", "empty.npz"), ("npz", "nothing.npz")):
        assert data_size(Data(source=source, path=str(tmp_path / name), test=0.5)) is None


def test_operations(tmp_path: Path) -> None:
    pool = replace(photographs(tmp_path / "pool", {"a": 40, "b": 40}), **SHARES)
    lines = "\n".join(str(number) for number in range(80)) + "\n# no image\n"
    (tmp_path / "all.txt").write_text(lines)
    every = KeepListed(kind="listed", path=str(tmp_path / "all.txt"), sha256=hashlib.sha256(lines.encode()).hexdigest())
    for operations in (
        (Subset(kind="subset", split="train", samples=20),),
        (Subset(kind="subset", split="train", samples=20, rest=True),),
        (Subset(kind="subset", split="test", samples=8), Subset(kind="subset", split="train", samples=20)),
        (every,),
        (KeepNamed(kind="named", pattern="*.png"),),
        (Concatenate(kind="concatenate", data=replace(pool, operations=(every,))),),
    ):
        assert_right(replace(pool, operations=operations))
    digits = Data(source="digits", test=0.25, validation=0.15)
    assert_right(digits)
    assert_right(replace(digits, operations=(Concatenate(kind="concatenate", data=replace(digits, validation=None)),)))


def test_what_a_list_or_a_pattern_leaves_is_about_right(tmp_path: Path) -> None:
    """Only the total is known before the draw, not the number of images in the test split."""
    pool = replace(photographs(tmp_path / "pool", {"a": 200, "b": 200}), **SHARES)
    lines = "\n".join(str(number) for number in range(0, 400, 4))
    (tmp_path / "some.txt").write_text(lines)
    quarter = KeepListed(
        kind="listed", path=str(tmp_path / "some.txt"), sha256=hashlib.sha256(lines.encode()).hexdigest()
    )
    even = KeepNamed(kind="named", pattern="even-*")
    for operations, share in (((quarter,), 0.25), ((even,), 0.5), ((even, KeepNamed(kind="named", pattern="e*")), 0.5)):
        data = replace(pool, operations=operations)
        size, parts = data_size(data), prepare_splits(data, Path())
        assert size is not None
        assert sum(size.images.values()) == pytest.approx(400 * share, abs=3)
        for split, part in parts.items():
            assert size.images[split] == pytest.approx(len(part.labels), abs=12)


def test_a_list_that_is_not_there_leaves_all(tmp_path: Path) -> None:
    missing = KeepListed(kind="listed", path=str(tmp_path / "none.txt"), sha256="a", split="train")
    size = data_size(Data(source="mnist", operations=(missing,)))
    assert size is not None
    assert size.images == {"train": 60_000, "test": 10_000}
