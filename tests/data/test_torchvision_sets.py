"""MNIST, CIFAR-10, SVHN and CIFAR-10.1 from miniature archives in the published formats, served on this machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import shutil
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from numpy.typing import NDArray
from PIL import Image

from robustfeatures.data import cifar10, cifar10_1, mnist, svhn
from robustfeatures.data.raw import RawData
from robustfeatures.data.registry import SOURCES, Size
from robustfeatures.data.settings import Data
from robustfeatures.engine.vision import import_torchvision
from robustfeatures.errors import UserError
from tests.conftest import REPOSITORY
from tests.data.test_download import Server, closed_port, visible

SHARED = REPOSITORY.parent / "shared" / "data"
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
BATCHES = [f"data_batch_{number}" for number in range(1, 6)]


@dataclass(frozen=True)
class Photographs:
    """images: uint8 (N, H, W, C). labels: (N,). names: the file name of each."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    names: list[str]

    def rows(self, *edges: int) -> Photographs:
        chosen = slice(*edges)
        return Photographs(self.images[chosen], self.labels[chosen], self.names[chosen])


def invent(count: int, shape: tuple[int, ...]) -> Photographs:
    generator = np.random.default_rng(count)
    images = generator.integers(0, 256, (count, *shape), dtype=np.uint8)
    return Photographs(images, np.arange(count) * 7 % 10, [f"thing_s_{number:06}.png" for number in range(count)])


def publish(monkeypatch: pytest.MonkeyPatch, source: str, **images: int) -> None:
    """Make these numbers of images the published ones of each split."""
    size = SOURCES[source].size
    assert isinstance(size, Size)
    monkeypatch.setitem(SOURCES, source, replace(SOURCES[source], size=replace(size, images=images)))


def real(archive: str, classes: list[str], count: int) -> Photographs:
    """`count` images of the folder `test` in a zip file of the shared data, the classes mixed."""
    path = SHARED / archive
    if not path.is_file():
        pytest.skip(f"{path} is not on this machine")
    with zipfile.ZipFile(path) as files:
        every = [name for name in files.namelist() if name.startswith("test/") and not name.endswith("/")]
        chosen = np.random.default_rng(0).permutation(sorted(every))[:count].tolist()
        images = np.stack([np.asarray(Image.open(io.BytesIO(files.read(name)))) for name in chosen])
    labels = np.array([classes.index(name.split("/")[1]) for name in chosen])
    return Photographs(images, labels, [Path(name).with_suffix(".png").name for name in chosen])


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")

    def no_other_way(url: str, *_: object) -> None:
        raise AssertionError(f"torchvision downloads {url} by itself")

    monkeypatch.setattr(import_torchvision().datasets.utils, "_urlretrieve", no_other_way)
    running = Server({})
    yield running
    running.close()


def pickled_by_python_2(value: object) -> bytes:
    """The format of the published CIFAR-10: the bytes of an array are a string, and numpy's modules have old names."""

    class Pickler(pickle.Pickler):
        def reducer_override(self, one: object) -> object:
            if not isinstance(one, np.ndarray):
                return NotImplemented
            make, _, state = one.__reduce__()
            return make, (np.ndarray, (0,), "b"), (*state[:4], state[4].decode("latin1"))

    file = io.BytesIO()
    Pickler(file, protocol=2).dump(value)
    return file.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def serve_cifar10(
    server: Server, monkeypatch: pytest.MonkeyPatch, photographs: Photographs, test: int
) -> dict[str, bytes]:
    """Serve the last `test` photographs as CIFAR-10's test batch and the others as its five batches to train on."""
    kind = import_torchvision().datasets.CIFAR10
    train = len(photographs.labels) - test
    edges = [*np.linspace(0, train, 6).astype(int).tolist(), len(photographs.labels)]
    files = {"batches.meta": pickle.dumps({"label_names": CLASSES, "num_vis": 3072}, protocol=2)}
    for name, begin, end in zip([*BATCHES, "test_batch"], edges, edges[1:], strict=False):
        part = photographs.rows(begin, end)
        # As published: 1024 red values, 1024 green, 1024 blue, row by row.
        data = np.stack([np.concatenate([image[..., colour].ravel() for colour in range(3)]) for image in part.images])
        batch = {"data": data, "labels": part.labels.tolist(), "filenames": part.names, "batch_label": name}
        files[name] = pickled_by_python_2(batch)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    server.files["cifar.tar.gz"] = packed.getvalue()
    monkeypatch.setattr(kind, "url", server.url + "cifar.tar.gz")
    monkeypatch.setattr(kind, "tgz_md5", md5(packed.getvalue()))
    monkeypatch.setattr(kind, "train_list", [[name, md5(files[name])] for name in BATCHES])
    monkeypatch.setattr(kind, "test_list", [["test_batch", md5(files["test_batch"])]])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": md5(files["batches.meta"])})
    publish(monkeypatch, "cifar10", train=train, test=test)
    return files


def serve_mnist(server: Server, monkeypatch: pytest.MonkeyPatch, photographs: Photographs, test: int) -> None:
    """Serve photographs (N, 28, 28) in MNIST's format, the last `test` for testing; the first mirror is down."""
    train = len(photographs.labels) - test
    resources = []
    for prefix, part in (("train", photographs.rows(0, train)), ("t10k", photographs.rows(train, train + test))):
        count, height, width = part.images.shape
        images = struct.pack(">4i", 0x803, count, height, width) + part.images.tobytes()
        labels = struct.pack(">2i", 0x801, count) + part.labels.astype(np.uint8).tobytes()
        for name, content in ((f"{prefix}-images-idx3-ubyte.gz", images), (f"{prefix}-labels-idx1-ubyte.gz", labels)):
            server.files[name] = gzip.compress(content)
            resources.append((name, md5(server.files[name])))
    kind = import_torchvision().datasets.MNIST
    monkeypatch.setattr(kind, "mirrors", [closed_port(), server.url])
    monkeypatch.setattr(kind, "resources", resources)
    publish(monkeypatch, "mnist", train=train, test=test)


def serve_svhn(server: Server, monkeypatch: pytest.MonkeyPatch, photographs: Photographs, test: int) -> None:
    """Serve photographs in SVHN's format, the last `test` of them for testing; the digit 0 is class 10 there."""
    train = len(photographs.labels) - test
    published = {}
    for split, part in (("train", photographs.rows(0, train)), ("test", photographs.rows(train, train + test))):
        file = io.BytesIO()
        labels = np.where(part.labels == 0, 10, part.labels).astype(np.uint8)[:, None]
        scipy.io.savemat(file, {"X": part.images.transpose(1, 2, 3, 0), "y": labels}, do_compression=True)
        name = f"{split}_32x32.mat"
        server.files[name] = file.getvalue()
        published[split] = [server.url + name, name, md5(file.getvalue())]
    # Never requested.
    published["extra"] = [server.url + "extra_32x32.mat", "extra_32x32.mat", "0" * 32]
    monkeypatch.setattr(import_torchvision().datasets.SVHN, "split_list", published)
    publish(monkeypatch, "svhn", train=train, test=test)


def serve_cifar10_1(server: Server, monkeypatch: pytest.MonkeyPatch, version: str, photographs: Photographs) -> None:
    sums = {}
    for what, values in (("data", photographs.images), ("labels", photographs.labels.astype(np.int32))):
        file = io.BytesIO()
        np.save(file, values)
        name = f"cifar10.1_{version}_{what}.npy"
        server.files[name] = file.getvalue()
        sums[name] = sha256(file.getvalue())
    monkeypatch.setattr(cifar10_1, "ADDRESS", server.url)
    monkeypatch.setattr(cifar10_1, "SHA256", sums)
    publish(monkeypatch, f"cifar10.1-{version}", test=len(photographs.labels))


def assert_same(raw: dict[str, RawData], photographs: Photographs, test: int) -> None:
    assert list(raw) == ["train", "test"]
    train = len(photographs.labels) - test
    for split, part in (("train", photographs.rows(0, train)), ("test", photographs.rows(train, train + test))):
        raw[split].check(split)
        assert raw[split].images.dtype == np.uint8
        images = raw[split].images[np.arange(len(part.labels))]
        expected = part.images if part.images.ndim == 4 else part.images[..., None]
        np.testing.assert_array_equal(images.transpose(0, 2, 3, 1), expected)
        np.testing.assert_array_equal(raw[split].labels, part.labels)


def test_real_photographs_come_back_from_a_cifar10_archive(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    photographs = real("cifar10/test.zip", CLASSES, 200)
    serve_cifar10(server, monkeypatch, photographs, test=60)
    raw = cifar10.load(Data(source="cifar10"), tmp_path)
    assert_same(raw, photographs, test=60)
    assert raw["train"].class_names == raw["test"].class_names == tuple(CLASSES) == cifar10_1.CLASSES
    assert [*raw["train"].names, *raw["test"].names] == photographs.names
    assert server.asked == [("cifar.tar.gz", None)]
    # From now on the extracted files suffice.
    (tmp_path / "cifar10" / "cifar-10-python.tar.gz").unlink()
    assert_same(cifar10.load(Data(source="cifar10"), tmp_path), photographs, test=60)
    assert len(server.asked) == 1


@pytest.mark.parametrize("name", ["data_batch_2", "test_batch", "batches.meta"])
@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_damaged_batch_is_extracted_again(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, damage: str
) -> None:
    photographs = invent(70, (32, 32, 3))
    files = serve_cifar10(server, monkeypatch, photographs, test=20)
    cifar10.load(Data(source="cifar10"), tmp_path)
    path = tmp_path / "cifar10" / "cifar-10-batches-py" / name
    path.unlink()
    if damage == "truncated":
        path.write_bytes(files[name][:-10])
    assert_same(cifar10.load(Data(source="cifar10"), tmp_path), photographs, test=20)
    assert path.read_bytes() == files[name]
    assert len(server.asked) == 1


def test_an_archive_that_holds_something_else(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    serve_cifar10(server, monkeypatch, invent(70, (32, 32, 3)), test=20)
    monkeypatch.setattr(import_torchvision().datasets.CIFAR10, "test_list", [["test_batch", "0" * 32]])
    with pytest.raises(UserError, match=r"cifar10: the archive does not hold the published files: "):
        cifar10.load(Data(source="cifar10"), tmp_path)


def test_real_digits_come_back_from_mnist_files(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = [str(digit) for digit in range(10)]
    photographs = real("mnist10k/mnist10k.zip", names, 200)
    serve_mnist(server, monkeypatch, photographs, test=60)
    for _ in range(2):
        raw = mnist.load(Data(source="mnist"), tmp_path)
        assert_same(raw, photographs, test=60)
        assert raw["train"].images.shape == (140, 1, 28, 28)
        assert raw["train"].class_names == tuple(names)
        assert len(server.asked) == 4


def test_digits_whose_extraction_was_interrupted(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Incomplete or changed extracted files are extracted again."""
    photographs = invent(70, (28, 28))
    serve_mnist(server, monkeypatch, photographs, test=20)
    mnist.load(Data(source="mnist"), tmp_path)
    path = tmp_path / "mnist" / "MNIST" / "raw" / "train-images-idx3-ubyte"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(content)
        assert_same(mnist.load(Data(source="mnist"), tmp_path), photographs, test=20)
        assert path.read_bytes() == whole


def test_house_numbers(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    photographs = invent(70, (32, 32, 3))
    serve_svhn(server, monkeypatch, photographs, test=20)
    for _ in range(2):
        raw = svhn.load(Data(source="svhn"), tmp_path)
        assert_same(raw, photographs, test=20)
        assert raw["train"].class_names == tuple("0123456789")
    assert [name for name, _ in server.asked] == ["train_32x32.mat", "test_32x32.mat"]
    assert visible(tmp_path / "svhn") == ["test_32x32.mat", "train_32x32.mat"]


@pytest.mark.parametrize("version", ["v4", "v6"])
def test_the_second_test_set_of_cifar10(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    photographs = invent(40, (32, 32, 3))
    serve_cifar10_1(server, monkeypatch, version, photographs)
    raw = cifar10_1.load(Data(source=f"cifar10.1-{version}"), tmp_path)
    assert list(raw) == ["test"]
    raw["test"].check("test")
    np.testing.assert_array_equal(raw["test"].images[np.arange(40)].transpose(0, 2, 3, 1), photographs.images)
    np.testing.assert_array_equal(raw["test"].labels, photographs.labels)
    assert raw["test"].labels.dtype == np.int64
    assert {name for name, _ in server.asked} == set(server.files)


Serve = Callable[[Server, pytest.MonkeyPatch], object]
SETS: dict[str, tuple[Serve, Callable[[Data, Path], dict[str, RawData]]]] = {
    "cifar10": (lambda *where: serve_cifar10(*where, invent(70, (32, 32, 3)), test=20), cifar10.load),
    "mnist": (lambda *where: serve_mnist(*where, invent(70, (28, 28)), test=20), mnist.load),
    "svhn": (lambda *where: serve_svhn(*where, invent(70, (32, 32, 3)), test=20), svhn.load),
    "cifar10.1-v6": (lambda *where: serve_cifar10_1(*where, "v6", invent(40, (32, 32, 3))), cifar10_1.load),
}


@pytest.mark.parametrize("source", SETS)
def test_another_number_of_images_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    serve, load = SETS[source]
    published = SOURCES[source]
    serve(server, monkeypatch)
    monkeypatch.setitem(SOURCES, source, published)
    with pytest.raises(UserError, match=rf"^data\.source: {source}: the split \w+ has \d\d images, not the published "):
        load(Data(source=source), tmp_path)


@pytest.mark.parametrize("source", SETS)
def test_offline(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str) -> None:
    serve, load = SETS[source]
    serve(server, monkeypatch)
    server.close()
    with pytest.raises(UserError, match=r"^[^\n]+ could not be fetched: [^\n]+Connection refused; run `robustfeatures"):
        load(Data(source=source), tmp_path)


@pytest.mark.parametrize(("source", "extractions"), [("cifar10", 1), ("mnist", 4)])
def test_jobs_at_once_extract_once(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, extractions: int
) -> None:
    serve, load = SETS[source]
    serve(server, monkeypatch)
    load(Data(source=source), tmp_path)
    for folder in tmp_path.rglob("*"):
        # Leave the archives alone.
        if folder.name == "cifar-10-batches-py":
            shutil.rmtree(folder)
        elif folder.name.endswith("-ubyte"):
            folder.unlink()
    done = []
    module, name = {
        "cifar10": (cifar10.tarfile, "open"),
        "mnist": (mnist, "write_atomically"),
    }[source]
    extract = getattr(module, name)

    def slowly(*arguments: object, **named: object) -> object:
        time.sleep(0.1)
        done.append(arguments)
        return extract(*arguments, **named)

    monkeypatch.setattr(module, name, slowly)
    with ThreadPoolExecutor(3) as threads:
        results = list(threads.map(lambda _: load(Data(source=source), tmp_path), range(3)))
    assert len(done) == extractions
    for raw in results[1:]:
        for split in ("train", "test"):
            np.testing.assert_array_equal(raw[split].images, results[0][split].images)


def test_published_addresses_and_sums_are_complete(tmp_path: Path) -> None:
    """Each set has addresses, its own folder, and a checksum of 32 or 64 hexadecimal digits."""
    modules = {"cifar10": cifar10, "mnist": mnist, "svhn": svhn, "cifar10.1-v4": cifar10_1, "cifar10.1-v6": cifar10_1}
    counts = {}
    for source, module in modules.items():
        files = module.downloads(Data(source=source), tmp_path)
        counts[source] = len(files)
        for file in files:
            assert file.path.relative_to(tmp_path).parts[0] == source.partition("-")[0]
            assert all(url.startswith(("https://", "http://")) and url.endswith(file.path.name) for url in file.urls)
            assert len(file.md5 or "") == 32 or len(file.sha256 or "") == 64
    assert counts == {"cifar10": 1, "mnist": 4, "svhn": 2, "cifar10.1-v4": 2, "cifar10.1-v6": 2}
    assert {source: SOURCES[source].published_images for source in modules} == {
        "cifar10": {"train": 50_000, "test": 10_000},
        "mnist": {"train": 60_000, "test": 10_000},
        "svhn": {"train": 73_257, "test": 26_032},
        "cifar10.1-v4": {"test": 2021},
        "cifar10.1-v6": {"test": 2000},
    }
