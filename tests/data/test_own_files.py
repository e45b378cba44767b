"""Arrays in one `.npz` file and torch tensors in the published layout: which images are read, and errors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robustfeatures.data import constructed, npz
from robustfeatures.data.preparation import prepare_splits
from robustfeatures.data.raw import RawData
from robustfeatures.data.settings import Data
from robustfeatures.engine.vision import import_torchvision
from robustfeatures.errors import UserError

NOWHERE = Path("unused")
GENERATOR = np.random.default_rng(0)
FLOATS = GENERATOR.random((40, 3, 4, 4), dtype=np.float32)


def everything(raw: RawData) -> np.ndarray:
    return raw.images[np.arange(len(raw.labels))]


def arrays(count: int = 40) -> dict[str, np.ndarray]:
    images = np.random.default_rng(0).integers(0, 256, (count, 1, 4, 4), dtype=np.uint8)
    return {"images": images, "labels": np.arange(count) % 4, "class_names": np.array(["a", "b", "c", "d"])}


def saved(tmp_path: Path, values: dict[str, np.ndarray]) -> Data:
    path = tmp_path / "own.npz"
    np.savez(path, **values)
    return Data(source="npz", path=str(path), sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def test_a_pool_in_an_npz(tmp_path: Path) -> None:
    wanted = saved(tmp_path, {**arrays(), "source_index": np.arange(40)})
    assert npz.compute_digest(wanted) == wanted.sha256
    raw = npz.load(wanted, NOWHERE)
    assert list(raw) == ["all"]
    np.testing.assert_array_equal(everything(raw["all"]), arrays()["images"])
    np.testing.assert_array_equal(raw["all"].labels, arrays()["labels"])
    assert raw["all"].class_names == ("a", "b", "c", "d")


def test_splits_in_an_npz(tmp_path: Path) -> None:
    values = {"class_names": arrays()["class_names"]}
    for count, split in ((40, "train"), (8, "validation"), (12, "test")):
        values |= {f"{split}_{name}": arrays(count)[name] for name in ("images", "labels")}
    raw = npz.load(saved(tmp_path, values), NOWHERE)
    assert {split: len(part.labels) for split, part in raw.items()} == {"train": 40, "validation": 8, "test": 12}
    np.testing.assert_array_equal(everything(raw["test"]), arrays(12)["images"])
    with pytest.raises(
        UserError, match=r"test_images are uint8 \(1, 5, 4\), train_images uint8 \(1, 4, 4\); all splits"
    ):
        npz.load(saved(tmp_path, {**values, "test_images": np.zeros((12, 1, 5, 4), np.uint8)}), NOWHERE)
    with pytest.raises(UserError, match=r"both 'images' and 'train_images'"):
        npz.load(saved(tmp_path, {**values, **arrays()}), NOWHERE)


def test_floats_stay_floats_and_classes_without_names_are_numbered(tmp_path: Path) -> None:
    raw = npz.load(saved(tmp_path, {"images": FLOATS, "labels": np.arange(40, dtype=np.uint8) % 3}), NOWHERE)["all"]
    assert raw.images.dtype == np.float32
    np.testing.assert_array_equal(everything(raw), FLOATS)
    assert raw.labels.dtype == np.int64
    assert raw.class_names == ("0", "1", "2")


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_arrays_are_resized_like_images(tmp_path: Path, dtype: type) -> None:
    transforms = import_torchvision().transforms
    images = GENERATOR.integers(0, 256, (4, 3, 6, 9), dtype=np.uint8)
    values = images if dtype == np.uint8 else (images / np.float32(255)).astype(np.float32)
    wanted = saved(tmp_path, {"train_images": values, "train_labels": np.arange(4)})
    raw = prepare_splits(replace(wanted, size=4), NOWHERE)["train"]
    assert raw.images.shape == (4, 3, 4, 4)
    assert raw.images.dtype == dtype
    reference = transforms.Compose([transforms.Resize(4, antialias=True), transforms.CenterCrop(4)])
    expected = reference(torch.from_numpy(values)).numpy()
    difference = np.abs(raw.images[np.array([3, 1])].astype(np.float64) - expected[[3, 1]])
    # Pillow and torch round the weights of the filter differently, by at most one grey level.
    assert difference.max() <= (1 if dtype == np.uint8 else 1e-6)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"images": np.zeros((40, 4, 4), np.uint8)}, r"images: the shape is \(40, 4, 4\)"),
        ({"images": np.zeros((40, 4, 4, 3), np.uint8)}, r"images: the shape is \(40, 4, 4, 3\), not \(N, 1 or 3, heig"),
        ({"images": np.zeros((40, 1, 4, 4))}, "images: the type is float64, not uint8 or float32"),
        ({"images": FLOATS * 255}, r"images: values from 0\.\d+ to 25\d\.\d+; they must lie in 0 to 1"),
        (
            {"images": (FLOATS > 0.5).astype(np.uint8)},
            "images: the largest value is 1; integers mean 0 to 255, so multiply by 255",
        ),
        ({"images": FLOATS - 0.5}, r"images: values from -0\.\d+ to 0\.\d+; they must lie in 0 to 1"),
        ({"images": np.where(FLOATS > 0.9, np.nan, FLOATS)}, "images: values from nan to nan; they must lie in 0 to 1"),
        ({"labels": np.arange(39) % 4}, r"labels: \(39,\) labels for 40 images"),
        ({"labels": np.arange(40) % 5}, "labels: label 4 of image 4 is not among the 4 classes 0 to 3"),
        ({"labels": np.arange(40) % 4 - 1}, "labels: label -1 of image 0 is not among the 4 classes"),
        ({"labels": np.arange(40) % 3}, r"labels: class 3 \(d\) has no image"),
        ({"labels": np.arange(40) / 4}, "labels: the type is float64, not an integer"),
        ({"test_images": np.zeros((40, 1, 4, 4), np.uint8)}, "has both 'images' and 'test_images'"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, changes: dict[str, np.ndarray], expected: str) -> None:
    with pytest.raises(UserError, match=rf"^data\.path: .*own\.npz:? {expected}") as refusal:
        npz.load(saved(tmp_path, {**arrays(), **changes}), NOWHERE)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("damage", ["missing", "truncated", "checksum", "array", "garbage", "folder", "no path"])
def test_files_that_cannot_be_read(tmp_path: Path, damage: str) -> None:
    wanted = saved(tmp_path, arrays())
    path = Path(str(wanted.path))
    content = path.read_bytes()
    if damage in ("missing", "folder"):
        path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage == "truncated":
        path.write_bytes(content[:100])
    elif damage == "array":
        np.savez(path, images=arrays()["images"])
    elif damage == "garbage":
        path.write_bytes(content[: len(content) // 2])
    if damage in ("array", "garbage"):
        wanted = replace(wanted, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    elif damage == "checksum":
        wanted = replace(wanted, sha256="0" * 64)
    elif damage == "no path":
        wanted = replace(wanted, path=None)
    expected = {
        "missing": r"^data\.path: .*own\.npz does not exist$",
        "truncated": r"^data\.sha256: .*own\.npz has the SHA-256 [0-9a-f]{64}, not .*truncated",
        "checksum": r"^data\.sha256: .*own\.npz has the SHA-256 [0-9a-f]{64}, not 0000",
        "array": r"^data\.path: .*own\.npz has no array 'labels'$",
        "garbage": r"^data\.path: .*own\.npz is not a readable \.npz file: ",
        "folder": r"^data\.path: .*own\.npz is not a file$",
        "no path": r"^data\.path: the source 'npz' needs a path",
    }[damage]
    with pytest.raises(UserError, match=expected):
        npz.load(wanted, NOWHERE)


def tensors(folder: Path, images: Any, labels: Any, *, legacy: bool = False, name: str = "CIFAR") -> Data:
    folder.mkdir(exist_ok=True)
    for value, suffix in ((images, "ims"), (labels, "lab")):
        torch.save(value, folder / f"{name}_{suffix}", _use_new_zipfile_serialization=not legacy)
    return with_digest(folder)


def with_digest(folder: Path) -> Data:
    lines = [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in folder.iterdir()]
    digest = hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()
    return Data(source="constructed", path=str(folder), sha256=digest)


LABELS = np.arange(40) % 10


def as_list(values: np.ndarray) -> list[torch.Tensor]:
    return list(torch.from_numpy(values).split(16))


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("form", [as_list, torch.from_numpy, lambda values: tuple(as_list(values))])
def test_tensors_in_the_published_layout(tmp_path: Path, form: Callable[[np.ndarray], Any], *, legacy: bool) -> None:
    """The images are those that the published README reads: torch.cat(torch.load(...))."""
    wanted = tensors(tmp_path / "robust_CIFAR", form(FLOATS), form(LABELS), legacy=legacy)
    assert constructed.compute_digest(wanted) == wanted.sha256
    raw = constructed.load(wanted, NOWHERE)
    assert list(raw) == ["all"]
    pool = raw["all"]
    assert pool.images.dtype == np.float32
    assert pool.images.shape == (40, 3, 4, 4)
    np.testing.assert_array_equal(everything(pool), FLOATS)
    rows = np.array([39, 0, 17, 16, 15])
    np.testing.assert_array_equal(pool.images[rows], FLOATS[rows])
    np.testing.assert_array_equal(pool.labels, LABELS)
    assert pool.class_names == tuple("0123456789")


@pytest.mark.parametrize(
    ("images", "labels", "expected"),
    [
        (as_list(FLOATS * 2), as_list(LABELS), r"images: values from .* they must lie in 0 to 1"),
        (as_list(FLOATS.transpose(0, 2, 3, 1).copy()), as_list(LABELS), r"images: the shape is \(40, 4, 4, 3\), not"),
        (as_list(FLOATS.astype(np.float64)), as_list(LABELS), "images: the type is float64, not uint8 or float32"),
        (
            [torch.zeros(2, 3, 4, 4), torch.zeros(2, 3, 5, 5)],
            as_list(LABELS),
            r"images: a tensor of shape \(2, 3, 5, 5",
        ),
        (as_list(FLOATS), as_list(LABELS.astype(np.float32)), r"labels: shape \(16,\) and type float32, not integers"),
        (as_list(FLOATS), as_list(LABELS[:39]), r"labels: \(39,\) labels for 40 images"),
        (as_list(FLOATS), as_list(LABELS * 2), r"labels: class 1 \(1\) has no image"),
        ({"images": torch.zeros(2)}, as_list(LABELS), "holds no tensor or list of tensors"),
        ([], as_list(LABELS), "holds no tensor or list of tensors"),
        (
            torch.zeros(2, 3, 4, 4, dtype=torch.bfloat16),
            as_list(LABELS),
            "tensors of type torch.bfloat16; save float32",
        ),
        (Path("a pickled object"), as_list(LABELS), "is not a readable torch file of tensors: "),
    ],
)
def test_tensors_that_do_not_fit(tmp_path: Path, images: Any, labels: Any, expected: str) -> None:
    with pytest.raises(UserError, match=rf"^data\.path: .*{expected}") as refusal:
        constructed.load(tensors(tmp_path, images, labels), NOWHERE)
    assert "\n" not in str(refusal.value)


def test_a_folder_with_other_than_one_pair(tmp_path: Path) -> None:
    wanted = tensors(tmp_path, as_list(FLOATS), as_list(LABELS))
    (tmp_path / "CIFAR_lab").rename(tmp_path / "CIFAR_labels")
    with pytest.raises(UserError, match=r"^data\.path: .* has 0 pairs of files <name>_ims and <name>_lab, not one$"):
        constructed.load(wanted, NOWHERE)
    (tmp_path / "CIFAR_labels").rename(tmp_path / "CIFAR_lab")
    tensors(tmp_path, as_list(FLOATS), as_list(LABELS), name="other")
    with pytest.raises(UserError, match="has 2 pairs of files"):
        constructed.load(wanted, NOWHERE)


def test_other_or_truncated_tensors(tmp_path: Path) -> None:
    wanted = tensors(tmp_path, as_list(FLOATS), as_list(LABELS))
    path = tmp_path / "CIFAR_ims"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"^data\.sha256: .* has the SHA-256 .*truncated"):
        constructed.load(wanted, NOWHERE)
    with pytest.raises(UserError, match=r"^data\.path: .*CIFAR_ims is not a readable torch file of tensors: "):
        constructed.load(with_digest(tmp_path), NOWHERE)
