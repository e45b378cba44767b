"""Pickles in the place of other files. No file that loading would create appears, and one line says why."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
import zarr

from robustfeatures import load_model, open_dataset
from robustfeatures.data import cifar10, constructed, mnist, npz
from robustfeatures.data.settings import Data
from robustfeatures.engine.vision import import_torchvision
from robustfeatures.errors import UserError
from robustfeatures.pipeline.run.checkpoints import Checkpoints
from robustfeatures.pipeline.store.content import content_digest
from robustfeatures.tools.exporting import export
from tests.data.test_torchvision_sets import invent, md5, serve_cifar10, serve_mnist, server
from tests.security.hostile import Payload, assert_one_line, pickled

__all__ = ["server"]


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


def saved(value: object, **options: bool) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


FORMS: dict[str, Callable[[Path], bytes]] = {
    "pickle": pickled,
    "torch": lambda marker: saved(Payload(marker)),
    "torch before 1.6": lambda marker: saved(Payload(marker), _use_new_zipfile_serialization=False),
    "among tensors": lambda marker: saved({"state_dict": {"weight": torch.zeros(2), "bias": Payload(marker)}}),
}


@pytest.fixture(params=FORMS)
def content(request: pytest.FixtureRequest, marker: Path) -> bytes:
    return FORMS[request.param](marker)


@pytest.mark.parametrize("form", ["torch", "torch before 1.6", "among tensors"])
def test_the_payloads_do_harm_where_they_are_trusted(marker: Path, form: str) -> None:
    torch.load(io.BytesIO(FORMS[form](marker)), weights_only=False)
    assert marker.exists()


def test_the_pickle_does_harm_where_it_is_trusted(marker: Path) -> None:
    pickle.loads(pickled(marker))  # noqa: S301
    assert marker.exists()


def test_weights(tmp_path: Path, marker: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"model\.safetensors: not a whole safetensors file") as caught:
        load_model(path)
    assert_one_line(str(caught.value))
    assert not marker.exists()


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt"])
def test_weights_from_elsewhere(tmp_path: Path, marker: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"foreign{suffix}"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"foreign\.\w+: not a torch file of tensors alone") as caught:
        load_model(path, architecture="linear", num_classes=2, image_shape=(1, 4, 4))
    assert_one_line(str(caught.value))
    assert not marker.exists()


def test_a_checkpoint(tmp_path: Path, marker: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    # With the digest of a whole one.
    (tmp_path / "checkpoint.pt").write_bytes(hashlib.sha256(content).digest() + content)
    with caplog.at_level(logging.WARNING):
        assert Checkpoints(tmp_path).load(torch.device("cpu")) is None
    assert "checkpoint.pt: damaged, with no other checkpoint; the training begins anew" in caplog.text
    assert not marker.exists()


def test_a_checkpoint_with_damage_anywhere(tmp_path: Path) -> None:
    Checkpoints(tmp_path).save({"network": {"weight": torch.ones(3)}, "epoch": 1})
    whole = (tmp_path / "checkpoint.pt").read_bytes()
    generator = np.random.default_rng(0)
    for _ in range(200):
        damaged = np.frombuffer(whole, np.uint8)[
            : generator.choice([len(whole), generator.integers(1, len(whole))])
        ].copy()
        damaged[generator.integers(len(damaged), size=8)] = generator.integers(256, size=8)
        (tmp_path / "checkpoint.pt").write_bytes(damaged.tobytes())
        assert Checkpoints(tmp_path).load(torch.device("cpu")) is None


@pytest.mark.parametrize("hostile", ["ims", "lab"])
def test_published_tensors(tmp_path: Path, marker: Path, content: bytes, hostile: str) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    torch.save(torch.rand(4, 1, 3, 3), folder / "CIFAR_ims")
    torch.save(torch.arange(4) % 2, folder / "CIFAR_lab")
    (folder / f"CIFAR_{hostile}").write_bytes(content)
    wanted = Data(source="constructed", path=str(folder))
    wanted = Data(source="constructed", path=str(folder), sha256=constructed.compute_digest(wanted))
    with pytest.raises(UserError, match=f"CIFAR_{hostile} is not a readable torch file of tensors") as caught:
        constructed.load(wanted, Path())
    assert_one_line(str(caught.value))
    assert not marker.exists()


@pytest.mark.parametrize("hostile", ["images", "labels", "class_names", "file"])
def test_arrays(tmp_path: Path, marker: Path, hostile: str) -> None:
    path = tmp_path / "set.npz"
    arrays = {
        "images": np.zeros((4, 1, 3, 3), np.uint8),
        "labels": np.arange(4) % 2,
        "class_names": np.array(["a", "b"]),
    }
    if hostile == "file":
        path.write_bytes(pickled(marker))
    else:
        arrays[hostile] = np.array([Payload(marker)], dtype=object)
        np.savez(path, **arrays, allow_pickle=True)
    wanted = Data(source="npz", path=str(path))
    wanted = Data(source="npz", path=str(path), sha256=npz.compute_digest(wanted))
    with pytest.raises(UserError, match=r"set\.npz is not a readable \.npz file") as caught:
        npz.load(wanted, Path())
    assert_one_line(str(caught.value))
    assert not marker.exists()


@pytest.mark.parametrize("hostile", ["data_batch_3", "batches.meta"])
def test_a_batch_of_cifar10_that_has_the_published_checksum(
    server: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, marker: Path, hostile: str
) -> None:
    files = serve_cifar10(server, monkeypatch, invent(70, (32, 32, 3)), test=20)
    folder = tmp_path / "raw" / "cifar10" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name, whole in {**files, hostile: pickled(marker)}.items():
        (folder / name).write_bytes(whole)
    kind = import_torchvision().datasets.CIFAR10
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": md5((folder / "batches.meta").read_bytes())})
    monkeypatch.setattr(kind, "train_list", [[name, md5((folder / name).read_bytes())] for name, _ in kind.train_list])
    with pytest.raises(UserError, match=r"cifar10: a published file holds no \w+\.system; this one does") as caught:
        cifar10.load(Data(source="cifar10"), tmp_path / "raw")
    assert_one_line(str(caught.value))
    assert not marker.exists()


def test_what_torchvision_once_left_beside_mnist(
    server: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, marker: Path
) -> None:
    """torchvision would read these instead of the published files."""
    photographs = invent(70, (28, 28))
    serve_mnist(server, monkeypatch, photographs, test=20)
    folder = tmp_path / "raw" / "mnist" / "MNIST" / "processed"
    folder.mkdir(parents=True)
    for name in ("training.pt", "test.pt"):
        (folder / name).write_bytes(pickled(marker))
    raw = mnist.load(Data(source="mnist"), tmp_path / "raw")
    np.testing.assert_array_equal(raw["test"].images[:, 0], photographs.images[50:])
    assert not marker.exists()


def test_a_zarr_array_whose_codec_unpickles(tmp_path: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """zarr's second format has such a codec, which old versions of numcodecs run. This package reads the third."""
    monkeypatch.setattr("numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE", True)
    path = tmp_path / "data.zarr"
    labels = path / "train" / "labels"
    labels.mkdir(parents=True)
    for group in (path, path / "train"):
        (group / ".zgroup").write_text('{"zarr_format": 2}')
    (path / ".zattrs").write_text('{"class_names": ["a"]}')
    layout = {"shape": [1], "chunks": [1], "dtype": "|O", "order": "C", "fill_value": ""}
    codecs = {"filters": [{"id": "vlen-utf8"}], "compressor": {"id": "pickle"}}
    (labels / ".zarray").write_text(json.dumps({"zarr_format": 2, **layout, **codecs}))
    (labels / "0").write_bytes(pickled(marker))
    for attempt in (lambda: open_dataset(path, "train"), lambda: export(path, tmp_path / "out", "npz")):
        with pytest.raises(UserError, match=r"data\.zarr: not a data set that this package wrote") as caught:
            attempt()
        assert_one_line(str(caught.value))
    with pytest.raises(FileNotFoundError):
        content_digest(path)
    assert not marker.exists()
    # Read as it asks to be, it does harm, before what it holds is found to be no array.
    with suppress(TypeError, ValueError, AttributeError):
        zarr.open_group(path, mode="r")["train/labels"][...]
    assert marker.exists()
