"""A file is hashed once on a machine, when it is first read, and again after any change."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.errors import UserError
from robustfeatures.pipeline.store import datasets, verified
from robustfeatures.pipeline.store.datasets import read_dataset, write_dataset
from robustfeatures.pipeline.store.store import Store

CONTENT = b"content"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were hashed in this test."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    found: list[Path] = []
    hash_file = verified.hash_file

    def listed(path: Path) -> str:
        found.append(path)
        return hash_file(path)

    monkeypatch.setattr(verified, "hash_file", listed)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(CONTENT)
    return tmp_path / "file"


def test_a_file_is_hashed_once(path: Path, hashed: list[Path]) -> None:
    assert verified.has_digest(path, SHA256)
    assert verified.has_digest(path, SHA256)
    assert hashed == [path]
    # Another process knows it too.
    code = (
        "import sys; from pathlib import Path; from robustfeatures.pipeline.store import verified\n"
        "verified.hash_file = None\n"
        "print(verified.has_digest(Path(sys.argv[1]), sys.argv[2]))"
    )
    environment = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    command = [sys.executable, "-c", code, str(path), SHA256]
    assert subprocess.run(command, env=environment, capture_output=True, check=True).stdout == b"True\n"


def test_any_change_is_noticed(path: Path, hashed: list[Path]) -> None:
    assert verified.has_digest(path, SHA256)
    before = path.stat()
    path.write_bytes(b"CONTENT")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not verified.has_digest(path, SHA256)
    # What is wrong is not remembered.
    assert not verified.has_digest(path, SHA256)
    assert len(hashed) == 3


@pytest.mark.parametrize("change", ["content", "new file", "fewer files", "name", "none"])
def test_a_folder_is_hashed_again_after_any_change(tmp_path: Path, change: str) -> None:
    computed = 0

    def compute() -> str:
        nonlocal computed
        computed += 1
        return str(computed)

    folder, file = tmp_path / "images", tmp_path / "images" / "class" / "1.png"
    file.parent.mkdir(parents=True)
    for name in ("1.png", "2.png"):
        file.with_name(name).write_bytes(CONTENT)
    assert verified.read_state(folder).size == 2 * len(CONTENT)
    assert verified.digest_once("folder", verified.read_state(folder), compute) == "1"
    before = file.stat()
    match change:
        case "content":
            file.write_bytes(b"CONTENT")
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        case "new file":
            file.with_name("3.png").touch()
        case "fewer files":
            file.unlink()
        case "name":
            file.rename(file.with_name("3.png"))
    assert verified.digest_once("folder", verified.read_state(folder), compute) == ("1" if change == "none" else "2")
    # Another digest of the same files is another matter.
    assert verified.digest_once("cinic10", verified.read_state(folder), compute) != "1"


@pytest.mark.parametrize("trouble", ["damaged", "of another", "open to others", "a file"])
def test_what_cannot_be_trusted_is_not_used(path: Path, hashed: list[Path], trouble: str) -> None:
    assert verified.has_digest(path, SHA256)
    database = verified._database()
    assert database is not None
    if trouble == "damaged":
        database.write_bytes(b"no database" * 100)
    elif trouble == "of another":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(database.parent, 54321, -1)
    elif trouble == "open to others":
        database.parent.chmod(0o777)
    else:
        database.unlink()
        database.parent.rmdir()
        database.parent.touch()
    assert verified.has_digest(path, SHA256)
    assert len(hashed) == 2


def test_shards_are_hashed_as_they_are_read(
    tmp_path: Path, hashed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "SHARD_BYTES", 1 << 12)
    store = Store(tmp_path / "store")
    images = np.random.default_rng(0).integers(0, 256, (400, 1, 8, 8), dtype=np.uint8)
    with store.lease("k") as lease:
        write_dataset(lease.fresh / "data.zarr", {"train": ImageDataset(images, np.zeros(400, np.int64), {}, ("a",))})
        store.publish(lease, {"content": "c", "built": {}})
    (path,) = store.verified("k", "c", ["data.zarr"])
    shards = [file for file in (path / "train" / "images" / "c").rglob("*") if file.is_file()]
    assert len(shards) == 7
    assert not set(hashed) & set(shards)
    dataset = read_dataset(path, "train", in_memory=False)
    np.testing.assert_array_equal(dataset.images[np.array([70, 3])], images[[70, 3]])
    assert {file for file in hashed if file in shards} == {path / f"train/images/c/{number}/0/0/0" for number in (0, 1)}
    other = path / "train/images/c/2/0/0/0"
    other.chmod(0o644)
    content = bytearray(other.read_bytes())
    content[5] ^= 1
    other.write_bytes(content)
    np.testing.assert_array_equal(dataset.images[np.array([0])], images[:1])
    with pytest.raises(UserError, match=r"2/0/0/0: damaged; run `robustfeatures verify --repair`"):
        dataset.images[np.array([130])]
