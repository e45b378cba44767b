"""`robustfeatures fetch`: download and check all raw data of a study."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from robustfeatures.data import cifar10_1
from robustfeatures.errors import UserError
from robustfeatures.tools.fetching import fetch
from tests.conftest import REPOSITORY, Workspace
from tests.data.test_download import Server

CONTENT = b"the images and labels of a version"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """CIFAR-10.1 on this machine: every file is `CONTENT` with the file's name."""
    monkeypatch.setenv("no_proxy", "*")
    running = Server({name: CONTENT + name.encode() for name in cifar10_1.SHA256})
    monkeypatch.setattr(cifar10_1, "ADDRESS", running.url)
    monkeypatch.setattr(cifar10_1, "SHA256", {name: sha256(content) for name, content in running.files.items()})
    yield running
    running.close()


def study(folder: Path, *, others: Mapping[str, Any] | None = None, **data: Any) -> Path:
    """The smoke study on other data."""
    values = yaml.safe_load((REPOSITORY / "workflow" / "studies" / "smoke.yaml").read_text())
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump({**values, "data": data, "other_data": dict(others or {})}))
    return path


def own_file(folder: Path) -> Path:
    path = folder / "own.npz"
    np.savez(path, images=np.zeros((4, 1, 2, 2), np.uint8), labels=np.arange(4) % 2)
    return path


def test_every_download_even_of_what_is_concatenated(server: Server, tmp_path: Path) -> None:
    nested = {"source": "cifar10.1-v6", "operations": [{"kind": "concatenate", "data": {"source": "cifar10.1-v4"}}]}
    path = study(tmp_path, source="cifar10.1-v4", operations=[{"kind": "concatenate", "data": nested}])
    lines = list(fetch(path, tmp_path / "raw"))
    # A source that appears twice is fetched once, with one line.
    assert lines == [
        f"cifar10.1-{version}: {tmp_path}/raw/cifar10.1/{name}: {len(server.files[name])} bytes, "
        f"SHA-256 {sha256(server.files[name])} as published"
        for version in ("v4", "v6")
        for name in (f"cifar10.1_{version}_data.npy", f"cifar10.1_{version}_labels.npy")
    ]
    for name, content in server.files.items():
        assert (tmp_path / "raw" / "cifar10.1" / name).read_bytes() == content
    # Without the internet the same check passes.
    server.close()
    assert list(fetch(path, tmp_path / "raw")) == lines


def test_what_cannot_be_fetched_does_not_keep_the_rest_back(server: Server, tmp_path: Path) -> None:
    own = own_file(tmp_path)
    nested = {"source": "npz", "path": str(own), "sha256": sha256(own.read_bytes())}
    path = study(tmp_path, source="cifar10.1-v6", operations=[{"kind": "concatenate", "data": nested}])
    server.close()
    lines = fetch(path, tmp_path / "raw")
    assert next(lines) == f"npz: {own}: SHA-256 {sha256(own.read_bytes())} as in the study"
    with pytest.raises(UserError) as caught:
        next(lines)
    message = str(caught.value)
    assert "\n" not in message
    assert message.count("could not be fetched") == 2
    assert f"or put the file at {tmp_path}/raw/cifar10.1/cifar10.1_v6_labels.npy" in message


def test_ones_own_file(tmp_path: Path) -> None:
    own = own_file(tmp_path)
    found = sha256(own.read_bytes())
    data = {"source": "npz", "path": str(own), "test": 0.25}
    path = study(tmp_path, **data)
    assert list(fetch(path, tmp_path)) == [f"npz: {own}: write beside this path in {path}: sha256: {found}"]
    study(tmp_path, **data, sha256=found)
    assert list(fetch(path, tmp_path)) == [f"npz: {own}: SHA-256 {found} as in the study"]
    study(tmp_path, **data, sha256="0" * 64)
    with pytest.raises(UserError, match=rf"^{path}: data\.sha256: {own} has the SHA-256 {found}, not 0+; is it"):
        list(fetch(path, tmp_path))


def test_the_line_to_write_makes_a_study_on_ones_own_photographs_whole(tmp_path: Path) -> None:
    """For a folder, too, the printed digest is the one that reading asks for."""
    from PIL import Image

    from robustfeatures.data.preparation import prepare_splits
    from robustfeatures.pipeline.study.study import read_study

    for split in ("train", "test"):
        for grey, name in enumerate(("cat", "dog")):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for number in range(3):
                Image.fromarray(np.full((8, 8, 3), 100 * grey + number, np.uint8)).save(folder / f"{number}.png")
    data = {"source": "folder", "path": str(tmp_path / "photos")}
    path = study(tmp_path, **data)
    (line,) = fetch(path, tmp_path)
    study(tmp_path, **data, sha256=line.rpartition(" ")[2])
    assert [line.endswith("as in the study") for line in fetch(path, tmp_path)] == [True]
    parts = prepare_splits(read_study(path).data, tmp_path)
    assert {name: len(part.labels) for name, part in parts.items()} == {"train": 6, "test": 6}


def test_a_problem_names_the_data_set_that_has_it(tmp_path: Path) -> None:
    own = own_file(tmp_path)
    wrong = {"source": "npz", "path": str(own), "test": 0.25, "sha256": "0" * 64}
    joined = [{"kind": "concatenate", "data": wrong}] * 2
    missing = {"kind": "listed", "path": str(tmp_path / "none.txt"), "sha256": "0" * 64}
    digits = {"source": "digits", "test": 0.25}
    others = {"second": wrong, "third": {**digits, "operations": [missing, *joined]}}
    path = study(tmp_path, **wrong, operations=joined, others=others)
    with pytest.raises(UserError) as refusal:
        list(fetch(path, tmp_path))
    # A data set that is joined twice has one message.
    differs = f"{own} has the SHA-256 {sha256(own.read_bytes())}, not {'0' * 64}; is it damaged, or another one?"
    assert str(refusal.value) == "; ".join(
        [
            f"{path}: data.sha256: {differs}",
            f"{path}: data.operations: concatenate: data.sha256: {differs}",
            f"{path}: other_data.second: data.sha256: {differs}",
            f"{path}: other_data.third: data.operations: listed.path: {tmp_path}/none.txt does not exist",
            f"{path}: other_data.third: data.operations: concatenate: data.sha256: {differs}",
        ]
    )


def test_what_the_disk_refuses_does_not_keep_the_rest_back(server: Server, tmp_path: Path) -> None:
    own = own_file(tmp_path)
    right = {"source": "npz", "path": str(own), "test": 0.25, "sha256": sha256(own.read_bytes())}
    unread = {"source": "constructed", "path": str(tmp_path / "pair"), "test": 0.25, "sha256": "0" * 64}
    (tmp_path / "pair").mkdir()
    (tmp_path / "pair" / "x_ims").mkdir()
    (tmp_path / "pair" / "x_lab").write_bytes(b"")
    # The folder for the downloads is a file.
    (tmp_path / "raw").write_bytes(b"")
    path = study(tmp_path, source="cifar10.1-v6", others={"folder": unread, "second": right})
    lines = fetch(path, tmp_path / "raw")
    assert next(lines) == f"npz: {own}: SHA-256 {sha256(own.read_bytes())} as in the study"
    with pytest.raises(UserError) as refusal:
        next(lines)
    assert str(refusal.value) == (
        f"{path}: data.source: {tmp_path}/raw/cifar10.1: Not a directory; "
        f"{path}: other_data.folder: data.path: {tmp_path}/pair/x_ims: Is a directory"
    )


@pytest.mark.parametrize("state", ["right", "changed", "missing"])
def test_lists_of_images_are_checked_too(tmp_path: Path, state: str) -> None:
    index = tmp_path / "kept.txt"
    index.write_text("0\n2\n")
    listed = {"kind": "listed", "path": str(index), "sha256": sha256(b"0\n2\n")}
    path = study(tmp_path, source="digits", test=0.25, operations=[listed])
    if state == "right":
        assert list(fetch(path, tmp_path)) == [
            "digits: comes with an installed package, nothing to fetch",
            f"listed: {index}: 4 bytes, SHA-256 {listed['sha256']} as in the study",
        ]
        return
    index.unlink()
    if state == "changed":
        index.write_text("0\n3\n")
    changed = sha256(b"0\n3\n")
    expected = {
        "changed": rf"^{path}: data\.operations: listed\.sha256: {index} has the SHA-256 {changed}, not ",
        "missing": rf"^{path}: data\.operations: listed\.path: {index} does not exist$",
    }[state]
    with pytest.raises(UserError, match=expected):
        list(fetch(path, tmp_path))


def test_a_list_without_a_digest_is_told_it(tmp_path: Path) -> None:
    index = tmp_path / "kept.txt"
    index.write_text("0\n2\n")
    path = study(tmp_path, source="digits", test=0.25, operations=[{"kind": "listed", "path": str(index)}])
    assert list(fetch(path, tmp_path))[1:] == [
        f"listed: {index}: write beside this path in {path}: sha256: {sha256(index.read_bytes())}"
    ]


def test_the_command(workspace: Workspace) -> None:
    done = workspace.command("fetch")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "digits: comes with an installed package, nothing to fetch\n"
    own = own_file(workspace.folder)
    path = study(workspace.folder / "workflow" / "studies", source="npz", path="own.npz", test=0.25, sha256="0" * 64)
    done = workspace.command("fetch", "--study", path.stem)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"robustfeatures: workflow/studies/study.yaml: data.sha256: own.npz has the SHA-256 "
        f"{sha256(own.read_bytes())}, not {'0' * 64}; is it damaged, or another one?\n"
    )


def test_fetching_imports_no_torch() -> None:
    """Login nodes only need downloads. Only the data sets that torchvision describes need torch."""
    check = "import sys, robustfeatures.tools.fetching, robustfeatures.data.registry; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
