"""Splits, the canonical form, where derived sets come from, and files of the user's own."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

import robustfeatures
from robustfeatures.data import digits, npz
from robustfeatures.data.dataset import ImageDataset, read_dataset, splits_of, write_dataset
from robustfeatures.data.raw import RawData
from robustfeatures.errors import UserError
from robustfeatures.recipes.parameters import Data
from robustfeatures.stages.data import split
from robustfeatures.stages.derived import starts, targets

DIGITS = Data(source="digits", validation=0.15, test=0.25)


def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    raw, reference = digits.load(DIGITS), load_digits()
    assert raw.images.shape == (1797, 1, 8, 8)
    assert np.abs(raw.images[:, 0] / 255 - reference.images / 16).max() <= 0.5 / 255 + 1e-12
    assert len(np.unique(raw.images)) == len(np.unique(reference.images)) == 17
    np.testing.assert_array_equal(raw.labels, reference.target)


def test_other_digits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "SHA256", "0" * 64)
    with pytest.raises(UserError, match=r"data\.source: the digits of this scikit-learn are not the known ones"):
        digits.load(DIGITS)


@pytest.mark.parametrize("seed", [0, 1])
def test_splits_are_disjoint_whole_stratified_and_fixed(seed: int) -> None:
    raw = digits.load(DIGITS)
    parameters = Data(source="digits", validation=0.15, test=0.25, split_seed=seed)
    parts = split(raw, parameters)
    assert list(parts) == ["train", "validation", "test"]
    together = np.concatenate(list(parts.values()))
    assert len(together) == len(raw.labels)
    np.testing.assert_array_equal(np.sort(together), np.arange(len(raw.labels)))
    for name, share in (("train", 0.6), ("validation", 0.15), ("test", 0.25)):
        counts = np.bincount(raw.labels[parts[name]])
        assert np.abs(counts - share * np.bincount(raw.labels)).max() <= 1.5
    again = split(raw, parameters)
    assert all(np.array_equal(again[name], parts[name]) for name in parts)


def test_too_few_images_for_a_split() -> None:
    raw = RawData(np.zeros((4, 1, 2, 2), np.uint8), np.array([0, 0, 1, 1]), ("a", "b"))
    with pytest.raises(UserError, match=r"data\.validation, data\.test: the images cannot be split so"):
        split(raw, DIGITS)


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
    assert splits_of(path) == ("train", "validation")
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


def test_to_torch() -> None:
    images = np.array([[[[0, 51], [102, 255]]]], np.uint8)
    dataset = ImageDataset(images, np.array([1]), {}, ("a", "b"))
    image, label = dataset.to_torch()[0]
    assert image.shape == (1, 2, 2)
    assert image.flatten().tolist() == pytest.approx([0.0, 0.2, 0.4, 1.0])
    assert int(label) == 1


def raw_data(count: int = 40) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count, 1, 4, 4), dtype=np.uint8)
    return {"images": images, "labels": np.arange(count) % 4, "class_names": np.array(["a", "b", "c", "d"])}


def saved(tmp_path: Path, **changes: np.ndarray) -> Data:
    path = tmp_path / "own.npz"
    np.savez(path, **{**raw_data(), **changes})
    return Data(
        source="npz", validation=0.2, test=0.2, file=str(path), sha256=hashlib.sha256(path.read_bytes()).hexdigest()
    )


def test_an_npz_of_ones_own(tmp_path: Path) -> None:
    raw = npz.load(saved(tmp_path))
    raw.check("own.npz")
    np.testing.assert_array_equal(raw.images, raw_data()["images"])
    assert raw.class_names == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"images": np.zeros((40, 4, 4), np.uint8)}, r"images: the shape is \(40, 4, 4\)"),
        ({"images": np.zeros((40, 2, 4, 4), np.uint8)}, r"images: the shape is \(40, 2, 4, 4\)"),
        ({"images": np.zeros((40, 1, 4, 4), np.float32)}, "images: the type is float32, not uint8"),
        ({"labels": np.arange(39) % 4}, r"labels: \(39,\) labels for 40 images"),
        ({"labels": np.arange(40) % 5}, "labels: label 4 of image 4 is not among the 4 classes 0 to 3"),
        ({"labels": np.arange(40) % 4 - 1}, "labels: label -1 of image 0 is not among the 4 classes"),
        ({"labels": np.arange(40) % 3}, r"labels: class 3 \(d\) has no image"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, changes: dict[str, np.ndarray], expected: str) -> None:
    with pytest.raises(UserError, match=f"^own.npz: {expected}"):
        npz.load(saved(tmp_path, **changes)).check("own.npz")


@pytest.mark.parametrize("damage", ["missing", "truncated", "checksum", "array", "no file"])
def test_files_that_cannot_be_read(tmp_path: Path, damage: str) -> None:
    parameters = saved(tmp_path)
    path = Path(str(parameters.file))
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:100])
    elif damage == "array":
        np.savez(path, images=raw_data()["images"])
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() and damage == "array" else "0" * 64
    changed = Data(
        source="npz",
        validation=0.2,
        test=0.2,
        file=None if damage == "no file" else str(path),
        sha256=parameters.sha256 if damage == "truncated" else sha256,
    )
    expected = {
        "missing": r"^data\.file: .*own\.npz does not exist$",
        "truncated": r"^data\.sha256: .*own\.npz has the SHA-256 [0-9a-f]{64}, not .*truncated\?$",
        "checksum": r"^data\.sha256: .*own\.npz has the SHA-256 [0-9a-f]{64}, not 0000",
        "array": r"^data\.file: .*own\.npz has no array 'labels'$",
        "no file": r"^data\.file: the source 'npz' needs a file",
    }[damage]
    with pytest.raises(UserError, match=expected):
        npz.load(changed)


def test_targets_and_starts_depend_on_the_image_alone() -> None:
    """Neither the other images nor their order changes what is drawn for one of them."""
    labels, indices = np.arange(1000) % 10, np.arange(1000) * 3
    drawn = targets(labels, indices, target="random", num_classes=10, seed=0)
    np.testing.assert_array_equal(
        drawn[500:], targets(labels[500:], indices[500:], target="random", num_classes=10, seed=0)
    )
    assert not np.array_equal(drawn, targets(labels, indices, target="random", num_classes=10, seed=1))
    # Uniform over all classes, whatever the label: each of 100 cells holds 10 on average.
    table = np.histogram2d(labels, drawn, bins=10)[0]
    assert ((table - 10) ** 2 / 10).sum() < 160
    np.testing.assert_array_equal(targets(labels, indices, target="next", num_classes=10, seed=0), (labels + 1) % 10)
    assert (targets(labels, indices, target=7, num_classes=10, seed=0) == 7).all()


def test_inversions_start_at_another_image_whatever_its_label() -> None:
    generator = np.random.default_rng(0)
    labels, count = np.arange(500) % 5, 500
    original = ImageDataset(
        generator.random((count, 1, 2, 2), dtype=np.float32), labels, {"source_index": np.arange(count) + 7}, ("x",) * 5
    )
    begin, index = starts(original, "images", seed=0)
    assert (index != original.provenance["source_index"]).all()
    np.testing.assert_array_equal(begin, original.images[index - 7])
    table = np.histogram2d(labels, labels[index - 7], bins=5)[0]
    # 16 degrees of freedom; 40 is beyond the 99.9th percentile.
    assert ((table - 20) ** 2 / 20).sum() < 45
    noise, none = starts(original, "noise", seed=0)
    assert (none == -1).all()
    assert noise.min() >= 0
    assert noise.max() <= 1
    assert abs(noise.mean() - 0.5) < 0.02


def test_public_names() -> None:
    assert callable(robustfeatures.open_dataset)
    assert callable(robustfeatures.load_model)
    with pytest.raises(AttributeError, match="nothing"):
        robustfeatures.nothing  # noqa: B018
