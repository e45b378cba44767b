"""Faults in the user's own files that would cause a traceback, a silent error, or exhausted memory."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer

from robustfeatures import cli
from robustfeatures.data import constructed, npz
from robustfeatures.data.raw import RawData
from robustfeatures.data.settings import Data
from robustfeatures.errors import UserError
from tests.data.test_own_files import FLOATS, LABELS, NOWHERE, arrays, as_list, saved, tensors
from tests.security.hostile import assert_one_line

IMAGES = arrays()["images"]


def load_error(values: dict[str, np.ndarray], folder: Path) -> str:
    with pytest.raises(UserError, match=r"^data\.path: .*own\.npz") as refusal:
        npz.load(saved(folder, values), NOWHERE)
    assert_one_line(str(refusal.value))
    return str(refusal.value)


def splits(*names: str) -> dict[str, np.ndarray]:
    return {f"{name}_{array}": arrays()[array] for name in names for array in ("images", "labels")}


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_a_validation_split_by_any_of_its_names(tmp_path: Path, name: str) -> None:
    raw = npz.load(saved(tmp_path, splits("test", name, "train")), NOWHERE)
    assert list(raw) == ["train", "validation", "test"]
    np.testing.assert_array_equal(raw["validation"].labels, arrays()["labels"])
    faulty = {**splits("train", name), f"{name}_labels": np.arange(40) - 1}
    assert f"own.npz: {name}: labels: label -1 of image 0 " in load_error(faulty, tmp_path)
    faulty = {**splits("train", name), f"{name}_images": IMAGES[:, :, 1:]}
    assert f"own.npz: {name}_images are uint8 (1, 3, 4), train_images uint8 (1, 4, 4)" in load_error(faulty, tmp_path)
    del faulty[f"{name}_images"]
    assert load_error(faulty, tmp_path).endswith(f"own.npz has no array '{name}_images'")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (splits("train", "val", "valid"), "has arrays of both 'val' and 'valid'; keep one"),
        (splits("train", "dev"), "'dev_images' is of no known split (train, val, valid, validation, test); rename it"),
        ({**splits("train"), "Test_labels": LABELS}, "'Test_labels' is of no known split"),
        ({**arrays(), "extra_images": IMAGES}, "'extra_images' is of no known split"),
        ({**arrays(), "val_images": IMAGES}, "has both 'images' and 'val_images'; keep the pool or the splits"),
    ],
)
def test_arrays_of_splits_that_are_not_known(tmp_path: Path, values: dict[str, np.ndarray], expected: str) -> None:
    assert expected in load_error(values, tmp_path)


@pytest.mark.parametrize(
    ("label", "dtype"),
    [(2**32 - 1, np.uint32), (2**63, np.uint64), (40, np.uint8), (-1, np.int8), (-(2**63), np.int64)],
)
def test_labels_that_are_no_numbers_of_classes(tmp_path: Path, label: int, dtype: type) -> None:
    labels = (np.arange(40) % 4).astype(dtype)
    labels[7] = label
    refusal = f"labels: label {label} of image 7 is not among 0 to 39; every class needs an image, and there are 40"
    assert refusal in load_error({"images": IMAGES, "labels": labels}, tmp_path)
    named = load_error({**arrays(), "labels": labels}, tmp_path)
    assert f"labels: label {label} of image 7 is not among the 4 classes 0 to 3" in named
    with pytest.raises(UserError) as caught:
        constructed.load(tensors(tmp_path / "set", as_list(FLOATS), as_list(labels)), NOWHERE)
    assert refusal in str(caught.value)


def test_many_classes_take_no_time_squared() -> None:
    """Counting the images of each name separately would take a minute."""
    count = 1 << 17
    names = tuple(str(number) for number in range(count))
    images = np.broadcast_to(np.uint8(0), (count, 1, 1, 1))
    RawData(images, np.arange(count), names).check("a set")
    with pytest.raises(UserError, match=r"^a set: class_names: '2' appears twice$"):
        RawData(images, np.arange(count), (*names[:-2], "3", "2")).check("a set")


@pytest.mark.parametrize("shape", [(40, 1, 0, 4), (40, 1, 4, 0), (40, 3, 0, 0)])
def test_images_without_pixels(tmp_path: Path, shape: tuple[int, ...]) -> None:
    expected = f"images: the shape is {shape}; height and width must be at least 1"
    assert expected in load_error({**arrays(), "images": np.zeros(shape, np.uint8)}, tmp_path)
    with pytest.raises(UserError) as caught:
        constructed.load(tensors(tmp_path / "set", torch.zeros(shape), as_list(LABELS)), NOWHERE)
    assert expected in str(caught.value)
    with pytest.raises(UserError, match=r"^a set: images: the shape is "):
        RawData(np.zeros(shape, np.uint8), LABELS, tuple("0123456789")).check("a set")


def archive(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)


def encode_npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def patch(path: Path, offset: int, value: int) -> None:
    """Change a field of each member in its own header and in the central directory, where it stands two bytes later."""
    content = bytearray(path.read_bytes())
    for signature, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        for start in range(len(content)):
            if content.startswith(signature, start):
                content[start + offset + shift] = value
    path.write_bytes(content)


WHOLE = {f"{name}.npy": encode_npy(array) for name, array in arrays().items()}
# numpy adds up the sizes of a header in 64 bits.
OVERFLOWING = WHOLE["images.npy"].replace(b"(40, 1, 4, 4), }" + 20 * b" ", b"(" + 22 * b"9" + b", 1, 4, 4), }")


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda path: path.write_bytes(b""), "own.npz is not a readable .npz file: No data left in file"),
        (lambda path: path.write_bytes(encode_npy(FLOATS)), "own.npz is not a readable .npz file: "),
        (lambda path: archive(path, {**WHOLE, "labels.npy": b""}), "own.npz: labels is not an array in numpy's format"),
        (lambda path: archive(path, {**WHOLE, "images.npy": b"GIF89a"}), "own.npz: images is not an array in numpy's"),
        (lambda path: archive(path, {**WHOLE, "class_names.npy": b"a"}), "own.npz: class_names is not an array in"),
        (lambda path: archive(path, {"images": b"1", "labels": b"2"}), "own.npz: images is not an array in numpy's"),
        (lambda path: archive(path, {**WHOLE, "images.npy": OVERFLOWING}), "own.npz is not a readable .npz file: "),
        (lambda path: patch(path, 8, 9), "own.npz is not a readable .npz file: That compression method"),
        (lambda path: patch(path, 6, 1), "is encrypted, password required for extraction"),
    ],
    ids=["empty", "one array", "empty member", "a GIF", "bytes", "no arrays", "overflow", "Deflate64", "encrypted"],
)
def test_files_that_are_not_archives_of_arrays(tmp_path: Path, damage: Callable[[Path], Any], expected: str) -> None:
    path = tmp_path / "own.npz"
    archive(path, WHOLE)
    damage(path)
    wanted = Data(source="npz", path=str(path))
    with pytest.raises(UserError, match=r"^data\.path: .*own\.npz") as refusal:
        npz.load(Data(source="npz", path=str(path), sha256=npz.compute_digest(wanted)), NOWHERE)
    assert expected in str(refusal.value)
    assert_one_line(str(refusal.value))


@pytest.mark.parametrize(
    ("number", "tensor", "expected"),
    [
        (
            1,
            torch._neg_view(-torch.rand(8, 3, 4, 4)),
            "torch.strided tensors of type torch.float32; save .*: Can't .* negative bit",
        ),
        (0, torch.zeros(8, 3, 4, 4).to_sparse(), "torch.sparse_coo tensors of type torch.float32; save .* dense "),
        (
            1,
            torch.empty(8, 3, 4, 4, device="meta"),
            "torch.strided tensors of type torch.float32; save .*: can't convert meta device",
        ),
        (
            1,
            torch.zeros(8, 3, 4, 4, dtype=torch.bfloat16),
            "torch.strided tensors of type torch.bfloat16; save float32",
        ),
    ],
    ids=["negative", "sparse", "meta", "bfloat16"],
)
def test_tensors_that_numpy_cannot_take(tmp_path: Path, number: int, tensor: torch.Tensor, expected: str) -> None:
    images = as_list(FLOATS)
    images[number] = tensor
    with pytest.raises(UserError, match=rf"^data\.path: .*CIFAR_ims holds {expected}") as refusal:
        constructed.load(tensors(tmp_path, images, as_list(LABELS)), NOWHERE)
    assert f" (tensor {number}: " in str(refusal.value)
    assert_one_line(str(refusal.value))


def test_class_names_of_bytes(tmp_path: Path) -> None:
    names = np.array([name.encode() for name in ("cat", "ça", "猫", "dog")])
    raw = npz.load(saved(tmp_path, {**arrays(), "class_names": names}), NOWHERE)
    assert raw["all"].class_names == ("cat", "ça", "猫", "dog")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (np.array([["a", "b"], ["c", "d"]]), "shape (2, 2) and type <U1, not strings (classes,)"),
        (np.array("a"), "shape () and type <U1, not strings (classes,)"),
        (np.arange(4), "shape (4,) and type int64, not strings (classes,)"),
        (np.array([], "U1"), "shape (0,) and type <U1, not strings (classes,)"),
        (np.array([b"a", b"b", b"c", b"\xff"]), "not text in UTF-8: "),
        (np.array(["a", "b", "c", "\ud800"]), "not text in UTF-8: "),
        (np.array([1, 2, 3, 2**31 - 1], np.int32).view("<U1"), "not text in UTF-8: "),
    ],
)
def test_class_names_that_are_no_row_of_strings(tmp_path: Path, names: np.ndarray, expected: str) -> None:
    assert f"own.npz: class_names: {expected}" in load_error({**arrays(), "class_names": names}, tmp_path)


@pytest.mark.parametrize("raised", [EOFError("ended too early"), typer.Abort()])
def test_a_file_that_ends_is_not_a_key_of_the_users(monkeypatch: pytest.MonkeyPatch, raised: Exception) -> None:
    def stop(*_: object) -> None:
        raise raised

    monkeypatch.setattr(cli.looking, "read_configuration", stop)
    monkeypatch.setattr(cli.run.logging, "shutdown", lambda: None)
    monkeypatch.setattr(cli.run.os, "_exit", sys.exit)
    monkeypatch.setattr(sys, "argv", ["robustfeatures", "status"])
    with pytest.raises(EOFError if isinstance(raised, EOFError) else SystemExit) as caught:
        cli.main()
    assert caught.value is raised or caught.value.code == 130
