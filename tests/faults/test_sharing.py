"""A push or a pull that is killed, has no right to write, or meets a full disk: one line, nothing half-written."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robustfeatures.files import list_files
from robustfeatures.pipeline.store import lease as leases
from robustfeatures.pipeline.store.format import open_store
from robustfeatures.pipeline.store.remote import Remote
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.store.transfers import push
from robustfeatures.tools.sharing import pull_from
from robustfeatures.tools.verify import verify
from tests.conftest import REPOSITORY
from tests.faults.conftest import Mount, as_nobody
from tests.remotes import sftp_server
from tests.stores import bytes_of, publish_files

KILLS = 10


def make(root: Path, *, payloads: int, files: int = 1, size: int = 10_000) -> Store:
    store = Store(root)
    for number in range(payloads):
        key = f"{number:016x}"
        contents = {f"{file}.bin": random.Random(f"{number} {file}").randbytes(size) for file in range(files)}  # noqa: S311
        publish_files(store, key, contents, content=key)
    open_store(root, expected=0)
    return store


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "robustfeatures", *arguments]
    given = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), **environment}
    return subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def count_files(folder: Path) -> int:
    """The files below a folder from which a process removes some meanwhile."""
    return sum(len(files) for _, _, files in os.walk(folder))


@pytest.mark.slow
@pytest.mark.parametrize("action", ["push", "pull"])
def test_ten_kills(tmp_path: Path, action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each kill what is there is whole, and the next run goes on; at the end everything has arrived."""
    store, fresh, remote = (
        make(tmp_path / "store", payloads=20, files=4, size=2_000_000),
        tmp_path / "fresh",
        tmp_path / "r",
    )
    if action == "pull":
        push(store, Remote.open(str(remote)), store.payload_keys())
    monkeypatch.setattr(leases, "LEASE_SECONDS", 2.0)
    target, source = (remote, store.root) if action == "push" else (fresh, fresh)
    chance, kills, completed = random.Random(0), 0, 0  # noqa: S311
    while kills < KILLS:
        before = count_files(target)
        process = start(action, str(remote), "--store", str(source), ROBUSTFEATURES_LEASE_SECONDS="2")
        while process.poll() is None and count_files(target) <= before + 2:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.1))
        if process.poll() is None:
            process.kill()
            kills += 1
        said = process.communicate()[1]
        assert process.returncode in (0, -signal.SIGKILL), said
        if process.returncode == 0:
            completed += 1
            for folder in target.rglob("*/"):
                folder.chmod(0o755)
            shutil.rmtree(target)
        elif action == "pull":
            assert list(verify(Store(fresh))) == []
        else:
            there = Remote.open(str(remote))
            for key in sorted(there.keys()):
                manifest = there.manifest(key)
                sizes = there.sizes(key)
                assert manifest is None or all(
                    sizes[one["sha256"]] == one["size"] for one in manifest["files"].values()
                )
    push(store, Remote.open(str(remote)), store.payload_keys())
    assert pull_from(str(remote), Store(fresh))[1] == []
    # A process killed while it took over a dead one's lock leaves an empty file, which `gc --unfinished` removes.
    arrived = {name: content for name, content in bytes_of(Store(fresh)).items() if ".lock" not in name}
    assert arrived == bytes_of(store)
    print(f"{kills} kills of {action}; {completed} runs were faster")


def test_a_folder_without_the_right_to_write(open_folder: Path) -> None:
    store, remote = make(open_folder / "store", payloads=2), open_folder / "remote"
    push(store, Remote.open(str(remote)), store.payload_keys()[:1])
    remote.chmod(0o555)
    before = {path: path.stat().st_mtime_ns for path in remote.rglob("*")}
    call = (
        "import fsspec.implementations.local, robustfeatures.tools.sharing\n"
        f"sys.argv = ['robustfeatures', 'push', {str(remote)!r}, '--store', {str(store.root)!r}]; cli.main()"
    )
    code = as_nobody(call)
    prelude, _, rest = code.partition("os.setgroups")
    code = (
        f"{prelude}import fsspec.implementations.local, robustfeatures.tools.sharing\nos.setgroups{rest}"
        if rest
        else code
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": "src"},
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"robustfeatures: {remote}: Permission denied"
    assert {path: path.stat().st_mtime_ns for path in remote.rglob("*")} == before


def test_a_server_without_the_right_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, remote = make(tmp_path / "store", payloads=2), tmp_path / "remote"
    push(store, Remote.open(str(remote)), store.payload_keys()[:1])
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with sftp_server(remote, tmp_path / "home", read_only=True) as address:
        process = start("push", address, "--store", str(store.root))
        _, said = process.communicate()
        # Reading needs no right to write.
        assert pull_from(address, Store(tmp_path / "fresh"))[0].endswith("pulled 1 payload; there before: 0")
    assert process.returncode == 1
    assert said.splitlines()[-1].startswith(f"robustfeatures: {address}: Permission denied")
    assert len(list(remote.glob("*/manifest.json"))) == 1


def test_a_server_whose_key_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with sftp_server(tmp_path / "remote", tmp_path / "home") as address:
        (tmp_path / "home/.ssh/known_hosts").write_text("")
        _, said = start("pull", address, "--store", str(tmp_path / "store")).communicate()
    assert said.splitlines()[-1].startswith(f"robustfeatures: {address}: Host key is not trusted")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("address", ["sftp://127.0.0.1:9/folder", "s3://bucket/folder"])
def test_a_server_that_is_not_there(tmp_path: Path, address: str) -> None:
    pytest.importorskip("sshfs")
    pytest.importorskip("s3fs")
    environment = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "not-to-be-shown",
        "HOME": str(tmp_path),
    }
    process = start("pull", address, "--store", str(tmp_path / "store"), **environment)
    _, said = process.communicate()
    assert process.returncode == 1
    (line,) = said.splitlines()
    assert line.startswith(f"robustfeatures: {address}: ")
    assert "not-to-be-shown" not in said
    assert not (tmp_path / "store").exists()


@pytest.fixture
def disk(tmp_path: Path, mount: Mount) -> Path:
    """A file system of 4 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount(place, "-t", "tmpfs", "-o", "size=4m", "tmpfs")
    return place


def test_a_full_disk_here(tmp_path: Path, disk: Path, mount: Mount) -> None:
    store, remote = make(tmp_path / "store", payloads=3, files=2, size=1_000_000), tmp_path / "remote"
    push(store, Remote.open(str(remote)), store.payload_keys())
    process = start("pull", str(remote), "--store", str(disk / "store"))
    _, said = process.communicate()
    assert process.returncode == 1
    (line,) = said.splitlines()
    assert line.startswith(f"robustfeatures: {disk}/store/")
    assert line.endswith("No space left on device")
    assert list(verify(Store(disk / "store"))) == []
    mount(disk, "-o", "remount,size=40m")
    assert pull_from(str(remote), Store(disk / "store"))[1] == []
    assert bytes_of(Store(disk / "store")) == bytes_of(store)


def test_a_full_disk_there(tmp_path: Path, disk: Path, mount: Mount) -> None:
    store, remote = make(tmp_path / "store", payloads=3, files=2, size=1_000_000), disk / "remote"
    process = start("push", str(remote), "--store", str(store.root))
    _, said = process.communicate()
    assert process.returncode == 1
    assert said.splitlines() == [f"robustfeatures: {remote}: No space left on device"]
    assert not [path for path in list_files(remote) if path.name.startswith(".") and path.name != ".format.json"]
    mount(disk, "-o", "remount,size=40m")
    assert push(store, Remote.open(str(remote)), store.payload_keys()).refused == []
    assert pull_from(str(remote), Store(tmp_path / "fresh"))[1] == []
    assert bytes_of(Store(tmp_path / "fresh")) == bytes_of(store)


def test_pull_needs_no_torch(tmp_path: Path) -> None:
    store, remote = make(tmp_path / "store", payloads=1), tmp_path / "remote"
    push(store, Remote.open(str(remote)), store.payload_keys())
    for name in ("torch", "torchvision", "zarr", "pandas"):
        (tmp_path / "without").mkdir(exist_ok=True)
        (tmp_path / "without" / f"{name}.py").write_text("raise ImportError('is not installed here')")
    process = start(
        "pull",
        str(remote),
        "--store",
        str(tmp_path / "fresh"),
        PYTHONPATH=f"{tmp_path / 'without'}:{REPOSITORY / 'src'}",
    )
    said, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert said == f"{remote}: pulled 1 payload; there before: 0\n"
    assert bytes_of(Store(tmp_path / "fresh")) == bytes_of(store)
