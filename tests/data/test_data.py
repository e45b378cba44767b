"""Splits, data sets, and the provenance of derived sets."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

import robustfeatures
from robustfeatures.data import digits
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.preparation import draw_splits
from robustfeatures.data.raw import RawData
from robustfeatures.data.settings import POOL, Data, KeepClasses
from robustfeatures.errors import UserError

DIGITS = Data(source="digits", validation=0.15, test=0.25)


def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    raw, reference = digits.load(DIGITS, Path())[POOL], load_digits()
    assert raw.images.shape == (1797, 1, 8, 8)
    assert np.abs(raw.images[:, 0] / 255 - reference.images / 16).max() <= 0.5 / 255 + 1e-12
    assert len(np.unique(raw.images)) == len(np.unique(reference.images)) == 17
    np.testing.assert_array_equal(raw.labels, reference.target)


def test_other_digits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "SHA256", "0" * 64)
    with pytest.raises(UserError, match=r"data\.source: the digits of this scikit-learn are not the known ones"):
        digits.load(DIGITS, Path())


@pytest.mark.parametrize("seed", [0, 1])
def test_splits_are_disjoint_whole_stratified_and_fixed(seed: int) -> None:
    raw = digits.load(DIGITS, Path())
    labels = raw[POOL].labels
    parameters = Data(source="digits", validation=0.15, test=0.25, split_seed=seed)
    parts = draw_splits(raw, parameters)
    assert set(parts) == {"train", "validation", "test"}
    together = np.concatenate([part.source_index for part in parts.values()])
    np.testing.assert_array_equal(np.sort(together), np.arange(len(labels)))
    for name, share in (("train", 0.6), ("validation", 0.15), ("test", 0.25)):
        part = parts[name]
        np.testing.assert_array_equal(part.labels, labels[part.source_index])
        np.testing.assert_array_equal(part.images[np.arange(5)], raw[POOL].images[part.source_index[:5]])
        assert np.abs(np.bincount(part.labels) - share * np.bincount(labels)).max() <= 1.5
    again = draw_splits(raw, parameters)
    assert all(np.array_equal(again[name].source_index, parts[name].source_index) for name in parts)


def test_a_source_keeps_its_own_test_split() -> None:
    images = np.zeros((40, 1, 2, 2), np.uint8)
    raw = {name: RawData(images, np.arange(40) % 2, ("a", "b")) for name in ("train", "test")}
    parts = draw_splits(raw, Data(source="mnist", validation=0.25))
    assert {name: (len(part.labels), part.origin) for name, part in parts.items()} == {
        "train": (30, "train"),
        "validation": (10, "train"),
        "test": (40, "test"),
    }
    assert set(draw_splits(raw, Data(source="mnist"))) == {"train", "test"}


def pairs(count: int) -> RawData:
    return RawData(np.zeros((count, 1, 1, 1), np.uint8), np.arange(count) % 2, ("a", "b"))


def test_a_source_without_a_test_split_gives_some_of_its_training_images() -> None:
    """A folder of `train` and `val`, and an npz of `train_images` alone; both shares refer to the whole of `train`."""
    parts = draw_splits({"train": pairs(80), "validation": pairs(40)}, Data(source="folder", test=0.25))
    assert {name: (len(part.labels), part.origin) for name, part in parts.items()} == {
        "train": (60, "train"),
        "validation": (40, "validation"),
        "test": (20, "train"),
    }
    parts = draw_splits({"train": pairs(80)}, Data(source="npz", test=0.25, validation=0.15))
    assert {name: len(part.labels) for name, part in parts.items()} == {"train": 48, "test": 20, "validation": 12}
    together = np.concatenate([part.source_index for part in parts.values()])
    np.testing.assert_array_equal(np.sort(together), np.arange(80))


@pytest.mark.parametrize(
    ("count", "test", "validation", "expected"),
    [
        (1000, 0.15, 0.1, (150, 100)),
        (100, 0.55, 0.07, (55, 7)),
        (1000, 0.7, 0.1, (700, 100)),
        (1797, 0.25, 0.15, (450, 270)),
        (1001, 0.1, 0.1, (101, 101)),
    ],
)
def test_shares_are_of_all_images_to_the_image(
    count: int, test: float, validation: float, expected: tuple[int, int]
) -> None:
    for name in (POOL, "train"):
        parts = draw_splits({name: pairs(count)}, Data(source="npz", test=test, validation=validation))
        assert (len(parts["test"].labels), len(parts["validation"].labels)) == expected


def test_the_digits_of_all_studies_stay_where_they_are() -> None:
    """The split of the published results has these rows."""
    parts = draw_splits(digits.load(DIGITS, Path()), DIGITS)
    assert {name: hashlib.sha256(part.source_index.tobytes()).hexdigest()[:16] for name, part in parts.items()} == {
        "train": "400c8d32e5860398",
        "test": "a18a99c68d6d634f",
        "validation": "6b82fd3472e956ff",
    }


@pytest.mark.parametrize(
    ("splits", "shares", "expected"),
    [
        (["test"], {"test": 0.1}, r"data\.test: the source 'mnist' has a test split of its own"),
        (["validation"], {"test": 0.1}, r"data\.test: the source 'mnist' has no images to train on"),
        ([POOL], {}, r"data\.test: the source has one pool of images; say what share"),
        (["train", "test"], {"test": 0.1}, r"data\.test: the source 'mnist' has a test split of its own"),
        (["train", "validation"], {"validation": 0.1}, r"data\.validation: the source 'mnist' has a validation split"),
        (["test"], {"validation": 0.1}, r"data\.validation: the source 'mnist' has no images to train on"),
    ],
)
def test_shares_that_do_not_fit_the_source(splits: list[str], shares: dict[str, float], expected: str) -> None:
    raw = {name: RawData(np.zeros((40, 1, 2, 2), np.uint8), np.arange(40) % 2, ("a", "b")) for name in splits}
    with pytest.raises(UserError, match=f"^{expected}"):
        draw_splits(raw, Data(source="mnist", **shares))


@pytest.mark.parametrize(
    ("counts", "shares", "expected"),
    [
        (
            (200, 200, 4),
            {"test": 0.05},
            r"data\.test: 0\.05: leaves the test split without the class 'c', which has 4 images; choose another share",
        ),
        ((97, 97, 3), {"test": 0.25, "validation": 0.15}, r"data\.validation: 0\.15: leaves the validation split with"),
        ((97, 97, 3), {"test": 0.98}, r"data\.test: 0\.98: leaves the train split without the class 'c'"),
    ],
)
def test_each_split_has_each_class(counts: tuple[int, ...], shares: dict[str, float], expected: str) -> None:
    labels = np.repeat(np.arange(3), counts)
    raw = RawData(np.zeros((len(labels), 1, 2, 2), np.uint8), labels, ("a", "b", "c"))
    with pytest.raises(UserError, match=f"^{expected}"):
        draw_splits({POOL: raw}, Data(source="npz", **shares))


def test_a_class_that_an_operation_leaves_out_may_be_rare() -> None:
    labels = np.repeat(np.arange(3), (200, 200, 4))
    raw = RawData(np.zeros((404, 1, 2, 2), np.uint8), labels, ("a", "b", "c"))
    keep = KeepClasses(kind="classes", keep=("a", "b"))
    parts = draw_splits({POOL: raw}, Data(source="npz", test=0.05, operations=(keep,)))
    assert np.unique(parts["test"].labels).tolist() == [0, 1]


def test_seeds_of_any_size_draw() -> None:
    few = Data(source="npz", test=0.25)
    first, same, other = (
        draw_splits({POOL: pairs(80)}, replace(few, split_seed=seed))["test"].source_index
        for seed in (7, 7 + 2**32, 20260101123456)
    )
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_too_few_images_for_a_split() -> None:
    raw = RawData(np.zeros((4, 1, 2, 2), np.uint8), np.array([0, 0, 1, 1]), ("a", "b"))
    with pytest.raises(UserError, match=r"data\.validation, data\.test: the images cannot be split so"):
        draw_splits({POOL: raw}, DIGITS)


def test_to_torch() -> None:
    images = np.array([[[[0, 51], [102, 255]]]], np.uint8)
    dataset = ImageDataset(images, np.array([1]), {}, ("a", "b"))
    image, label = dataset.to_torch()[0]
    assert image.shape == (1, 2, 2)
    assert image.flatten().tolist() == pytest.approx([0.0, 0.2, 0.4, 1.0])
    assert int(label) == 1


def test_statistics_are_numpys() -> None:
    images = np.random.default_rng(0).integers(0, 256, (500, 3, 8, 8), dtype=np.uint8)
    mean, std = ImageDataset(images, np.zeros(500, np.int64), {}, ("a",)).channel_statistics()
    np.testing.assert_allclose(mean, (images / 255).mean(axis=(0, 2, 3)))
    np.testing.assert_allclose(std, (images / 255).std(axis=(0, 2, 3)))


@pytest.mark.parametrize("value", [0, 77, 255])
def test_a_constant_channel_keeps_its_scale(value: int) -> None:
    """By its own deviation, which is 0 but for rounding, a network would see changes of it a million times larger."""
    images = np.random.default_rng(0).integers(0, 256, (500, 3, 8, 8), dtype=np.uint8)
    images[:, 2] = value
    flat = (images / 255).transpose(0, 2, 3, 1).reshape(-1, 3)
    scaler = StandardScaler().fit(flat)
    mean, std = ImageDataset(images, np.zeros(500, np.int64), {}, ("a",)).channel_statistics()
    np.testing.assert_allclose(mean, scaler.mean_)
    np.testing.assert_allclose(std, scaler.scale_)
    assert std[2] == 1


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_statistics_of_several_blocks_are_numpys(monkeypatch: pytest.MonkeyPatch, dtype: type) -> None:
    """CIFAR-10 has nineteen. Here they hold 70 images, and the last one fewer."""
    monkeypatch.setattr("robustfeatures.data.pixels.BLOCK_BYTES", 70 * 3 * 8 * 6 * 4)
    images = np.random.default_rng(0).integers(0, 256, (500, 3, 8, 6), dtype=np.uint8)
    images[:70] //= 4
    given = images if dtype is np.uint8 else (images / 255).astype(np.float32)
    mean, std = ImageDataset(given, np.zeros(500, np.int64), {}, ("a",)).channel_statistics()
    np.testing.assert_allclose(mean, (images / 255).mean(axis=(0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(std, (images / 255).std(axis=(0, 2, 3)), rtol=1e-6)


def test_public_names() -> None:
    assert callable(robustfeatures.open_dataset)
    assert callable(robustfeatures.load_model)
    with pytest.raises(AttributeError, match="nothing"):
        robustfeatures.nothing  # noqa: B018
