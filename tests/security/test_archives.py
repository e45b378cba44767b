"""Archives whose members lead out of the folder that they are extracted to."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from robustfeatures.data import cifar10, mnist, npz
from robustfeatures.data.settings import Data
from robustfeatures.engine.vision import import_torchvision
from robustfeatures.errors import UserError
from tests.data.test_download import Server
from tests.data.test_torchvision_sets import assert_same, invent, md5, serve_cifar10, serve_mnist, server
from tests.security.hostile import assert_one_line

__all__ = ["server"]

FOLDER = "cifar-10-batches-py"


def _file(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = 6
    return member


def _link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def _device(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.devmajor, member.devminor = kind, 1, 3
    return member


LINK = f"{FOLDER}/link"
# Members that lie before all others; `outside` is a folder beside the one for raw data.
MEMBERS: dict[str, Callable[[Path], list[tarfile.TarInfo]]] = {
    "parent": lambda outside: [_file("../../outside/file"), _file(f"{FOLDER}/../../../outside/file")],
    "absolute": lambda outside: [_file(str(outside / "file"))],
    "symbolic link": lambda outside: [_link(LINK, str(outside)), _file(f"{LINK}/file")],
    "relative symbolic link": lambda outside: [
        _link(LINK, "../../../outside"),
        _file(f"{LINK}/file"),
    ],
    "hard link": lambda outside: [
        _link(LINK, "../../outside/kept", tarfile.LNKTYPE),
        _file(LINK),
    ],
    "folder is a link": lambda outside: [_link(FOLDER, str(outside))],
    "file is a link": lambda outside: [_link(f"{FOLDER}/data_batch_1", str(outside / "kept"))],
    "device": lambda outside: [
        _device(f"{FOLDER}/device", tarfile.CHRTYPE),
        _device(f"{FOLDER}/pipe", tarfile.FIFOTYPE),
    ],
}


def packed(members: list[tarfile.TarInfo], files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"harm!\n") if member.size else None)
        for name, content in files.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


@pytest.mark.parametrize("hostile", MEMBERS)
@pytest.mark.parametrize("whole", [True, False])
def test_cifar10(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hostile: str, whole: bool) -> None:
    photographs = invent(70, (32, 32, 3))
    files = serve_cifar10(server, monkeypatch, photographs, test=20)
    outside, raw = tmp_path / "outside", tmp_path / "raw"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    content = packed(MEMBERS[hostile](outside), files if whole else {})
    server.files["cifar.tar.gz"] = content
    monkeypatch.setattr(import_torchvision().datasets.CIFAR10, "tgz_md5", md5(content))
    if whole:
        # The published members are there too and are used. If a member appears twice, the later one counts.
        assert_same(cifar10.load(Data(source="cifar10"), raw), photographs, test=20)
    else:
        with pytest.raises(UserError, match="the archive does not hold the published files") as caught:
            cifar10.load(Data(source="cifar10"), raw)
        assert_one_line(str(caught.value))
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_text() == "kept"
    assert {path.name for path in tmp_path.iterdir()} == {"outside", "raw"}
    assert all(path.is_file() or path.is_dir() for path in raw.rglob("*"))
    assert not any(path.is_symlink() for path in raw.rglob("*"))


def test_mnist_whose_archives_name_another_file(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    photographs = invent(70, (28, 28))
    serve_mnist(server, monkeypatch, photographs, test=20)
    kind = import_torchvision().datasets.MNIST
    for name, _ in kind.resources:
        file = io.BytesIO()
        with gzip.GzipFile("../../../../outside", "wb", fileobj=file) as archive:
            archive.write(gzip.decompress(server.files[name]))
        server.files[name] = file.getvalue()
    monkeypatch.setattr(kind, "resources", [(name, md5(server.files[name])) for name, _ in kind.resources])
    assert_same(mnist.load(Data(source="mnist"), tmp_path / "raw"), photographs, test=20)
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


@pytest.mark.parametrize("name", ["../outside.npy", "/tmp/outside.npy", "images/../../outside.npy"])  # noqa: S108
def test_npz_with_members_elsewhere(tmp_path: Path, name: str) -> None:
    path = tmp_path / "set" / "set.npz"
    path.parent.mkdir()
    np.savez(path, images=np.zeros((4, 1, 3, 3), np.uint8), labels=np.arange(4) % 2)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, archive.read("labels.npy"))
    wanted = Data(source="npz", path=str(path))
    raw = npz.load(Data(source="npz", path=str(path), sha256=npz.compute_digest(wanted)), Path())
    assert len(raw["all"].labels) == 4
    assert list(tmp_path.rglob("outside*")) == []
    assert not Path("/tmp/outside.npy").exists()  # noqa: S108
