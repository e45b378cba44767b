"""Payloads that go to a folder, to a real sshd and to an S3 server, and come back byte for byte."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from robustfeatures.errors import UserError
from robustfeatures.files import write_json
from robustfeatures.pipeline.store.acceptances import write_acceptance
from robustfeatures.pipeline.store.format import FILE, check_store, open_store
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.store.remote import Remote, check_address
from robustfeatures.pipeline.store.sealed import write_sealed
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.store.transfers import Outcome, push
from robustfeatures.pipeline.study.config import read_config
from robustfeatures.tools.sharing import pull_from, push_to
from robustfeatures.tools.verify import verify
from tests.remotes import remote_of
from tests.stores import bytes_of, publish_files

AGAIN = "push again from a store that has it"
KEYS = tuple(f"{number:016x}" for number in range(3))
FILES = {
    "rows.csv": b"a,b\n1,2\n",
    "data.zarr/train/c/0/0": b"x" * 200_000,
    "data.zarr/empty": b"",
    "twice": b"a,b\n1,2\n",
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    for key in KEYS:
        publish_files(store, key, FILES)
    return store


@pytest.fixture(scope="module", params=["folder", "sftp", "s3"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    with pytest.MonkeyPatch.context() as patch, remote_of(request.param, folder, patch) as address:
        yield address


@pytest.fixture
def address(server: str, tmp_path: Path) -> str:
    """The address of an empty remote of this test."""
    return f"{server}/{tmp_path.name}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "remote"


def push_all(store: Store, address: str | Path) -> Outcome:
    return push(store, Remote.open(str(address)), store.payload_keys())


def test_there_and_back(store: Store, tmp_path: Path, address: str) -> None:
    assert sorted(push_all(store, address).moved) == [*KEYS]
    remote = Remote.open(address)
    assert remote.keys() == {*KEYS}
    # One object for each file that differs from the others, and the manifest.
    expected = {hashlib.sha256(value).hexdigest(): len(value) for value in FILES.values()}
    found = remote.sizes(KEYS[0])
    assert found.pop("manifest.json") > 0
    assert found == expected
    fresh = Store(tmp_path / "fresh")
    line, problems = pull_from(address, fresh)
    assert (line, problems) == (f"{address}: pulled 3 payloads; there before: 0", [])
    assert bytes_of(fresh) == bytes_of(store)
    assert list(verify(fresh)) == []
    assert not list((fresh.root / ".partial").glob("*/"))
    assert pull_from(address, fresh)[0].endswith("pulled 0 payloads; there before: 3")
    again = push_all(store, address)
    assert (again.moved, sorted(again.there)) == ([], [*KEYS])


def test_a_push_goes_on_where_another_ended(store: Store, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a manifest a payload is not there, but its objects are not sent again."""
    remote = Remote.open(address)
    remote.create()
    sent: list[str] = []
    put = Remote.put
    monkeypatch.setattr(
        Remote, "put", lambda self, path, name, moved: (sent.append(name), put(self, path, name, moved))
    )
    name = hashlib.sha256(FILES["data.zarr/train/c/0/0"]).hexdigest()
    remote.put(store.payload(KEYS[0]) / "data.zarr/train/c/0/0", f"{KEYS[0]}/{name}", lambda _: None)
    sent.clear()
    assert remote.manifest(KEYS[0]) is None
    assert push_all(store, address).refused == []
    assert len(sent) == 3 * 3 - 1
    assert f"{KEYS[0]}/{name}" not in sent


def test_a_truncated_object_is_named_and_not_taken(store: Store, tmp_path: Path, address: str) -> None:
    push_all(store, address)
    remote = Remote.open(address)
    name = hashlib.sha256(FILES["data.zarr/train/c/0/0"]).hexdigest()
    remote.write(f"{KEYS[1]}/{name}", b"x" * 1000)
    fresh = Store(tmp_path / "fresh")
    _, problems = pull_from(address, fresh)
    assert problems == [f"{address}/{KEYS[1]}/{name}: damaged; remove this file there, then {AGAIN}"]
    assert fresh.payload_keys() == [KEYS[0], KEYS[2]]
    assert list(verify(fresh)) == []
    # The next push of one who has it mends it, and the next pull takes what came before from the disk.
    assert push_all(store, address).moved == [KEYS[1]]
    assert pull_from(address, fresh)[1] == []
    assert bytes_of(fresh) == bytes_of(store)


@pytest.mark.parametrize("harm", ["gone", "flipped", "manifest"])
def test_other_damage(store: Store, tmp_path: Path, folder: Path, harm: str) -> None:
    push_all(store, folder)
    name = "manifest.json" if harm == "manifest" else hashlib.sha256(FILES["rows.csv"]).hexdigest()
    victim = folder / KEYS[0] / name
    if harm == "gone":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes().replace(b"1", b"7"))
    fresh = Store(tmp_path / "fresh")
    _, problems = pull_from(str(folder), fresh)
    said = {"gone": "missing; ", "flipped": "damaged; remove this file there, then ", "manifest": "damaged; "}[harm]
    assert problems == [f"{folder}/{KEYS[0]}/{name}: {said}{AGAIN}"]
    assert fresh.payload_keys() == [*KEYS[1:]]
    # What the line says heals it.
    if harm == "flipped":
        victim.unlink()
    push_all(store, folder)
    assert pull_from(str(folder), fresh)[1] == []
    assert bytes_of(fresh) == bytes_of(store)


@pytest.mark.parametrize("name", ["../../outside", "/outside", "a/../../b", "manifest.json", ""])
def test_a_manifest_that_leaves_its_payload(store: Store, tmp_path: Path, folder: Path, name: str) -> None:
    push_all(store, folder)
    path = folder / KEYS[0] / "manifest.json"
    manifest = json.loads(path.read_text())
    facts = manifest["files"].pop("twice")
    manifest["files"][name] = facts
    del manifest["seal"]
    path.unlink()
    write_sealed(path, manifest)
    _, problems = pull_from(str(folder), Store(tmp_path / "fresh"))
    assert problems == [f"{folder}/{KEYS[0]}/manifest.json: damaged; {AGAIN}"]
    assert not list(tmp_path.rglob("outside"))
    assert not Path("/outside").exists()


def test_a_key_with_other_content_stays_as_it_is(store: Store, tmp_path: Path, address: str) -> None:
    push_all(store, address)
    other = Store(tmp_path / "other")
    publish_files(other, KEYS[0], {"rows.csv": b"b"}, content="other")
    publish_files(other, "f" * 16, FILES)
    outcome = push_all(other, address)
    assert outcome.moved == ["f" * 16]
    (line,) = outcome.refused
    assert line.startswith(f"{address}/{KEYS[0]}: has other content than here")
    assert Remote.open(address).manifest(KEYS[0]) == store.manifest(KEYS[0])


def test_damage_here_is_not_pushed(store: Store, folder: Path) -> None:
    victim = store.payload(KEYS[0]) / "data.zarr/train/c/0/0"
    victim.chmod(0o644)
    victim.write_bytes(b"y" * 200_000)
    outcome = push_all(store, folder)
    assert sorted(outcome.moved) == [*KEYS[1:]]
    assert outcome.refused == [f"{victim}: damaged; run `robustfeatures verify --repair`"]
    assert not (folder / KEYS[0] / "manifest.json").exists()


def test_two_people_push_at_once(store: Store, tmp_path: Path, address: str) -> None:
    """The same keys, with the same content in other bytes, and keys of their own: everything arrives, and is whole."""
    other = Store(tmp_path / "other")
    for key in KEYS:
        publish_files(other, key, {**FILES, "log": b"of another machine"})
    publish_files(other, "f" * 16, FILES)
    publish_files(store, "e" * 16, FILES)
    outcomes: list[Outcome] = []
    threads = [
        threading.Thread(target=lambda one=one: outcomes.append(push_all(one, address))) for one in (store, other) * 2
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcome.refused for outcome in outcomes] == [[]] * 4
    fresh = Store(tmp_path / "fresh")
    assert pull_from(address, fresh)[1] == []
    assert fresh.payload_keys() == [*KEYS, "e" * 16, "f" * 16]
    assert list(verify(fresh)) == []


def test_two_people_pull_into_one_store(store: Store, tmp_path: Path, folder: Path) -> None:
    push_all(store, folder)
    fresh = Store(tmp_path / "fresh")
    said: list[tuple[str, list[str]]] = []
    threads = [threading.Thread(target=lambda: said.append(pull_from(str(folder), fresh))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 3
    assert pull_from(str(folder), fresh)[1] == []
    assert bytes_of(fresh) == bytes_of(store)


def test_acceptances_come_along(store: Store, tmp_path: Path, address: str) -> None:
    entry = {"kept": KEYS[0], "content": "content", "artifact": "data/x", "before": {}, "now": {}}
    record = {"when": "2026-01-01T00:00:00+00:00", "reason": "r", "study": "s", "check": 1, "compared": []}
    write_acceptance(store.root, {**record, "stands": {"a" * 16: entry}})
    push_all(store, address)
    fresh = Store(tmp_path / "fresh")
    pull_from(address, fresh)
    found = fresh.manifest("a" * 16)
    assert found is not None
    assert found["key"] == KEYS[0]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ftp://host/folder", "unknown scheme 'ftp' (did you mean 'sftp'?)"),
        ("gopher://host/x", "unknown scheme 'gopher' (known: file, s3, sftp)"),
        ("sftp://me:hunter2@host/folder", "holds a password or options; use a key of ~/.ssh or an agent"),
        ("sftp://me:hunter2/x@host/folder", "the host or the port is wrong"),
        ("sftp://me:1/hunter2@host/folder", "holds a second @ or a password with a slash"),
        ("sftp://me:/hunter2@host/folder", "holds a second @ or a password with a slash"),
        ("s3://hunter2/x@bucket/folder", "holds a second @ or a password with a slash"),
        ("sftp://[x/y", "the host or the port is wrong; write sftp://user@host:22/folder"),
        ("sftp://host:99999/x", "the host or the port is wrong"),
        ("s3://AKIA:hunter2@bucket/folder", "holds credentials; give them in ~/.aws/credentials or AWS_* variables"),
        ("s3://bucket/folder?secret=hunter2", "holds a password or options"),
        ("sftp:///folder", "names no place"),
        ("", "names no place"),
    ],
)
def test_addresses_that_are_refused(address: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_config({"study": "digits", "remote": address})
    assert str(caught.value).startswith(f"config.yaml: remote: {message}")
    assert "hunter2" not in str(caught.value)


def test_addresses_that_are_accepted() -> None:
    for address in (
        "shared",
        "/a/b",
        "~/x",
        "file:///a/b",
        "sftp://me@host:22/a/b",
        "sftp://host/a",
        "s3://bucket/a b",
    ):
        check_address(address, "remote")


def test_a_folder_that_is_no_remote(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no remote here; `robustfeatures push` makes one"):
        pull_from(str(tmp_path / "nothing"), Store(tmp_path / "store"))
    assert not (tmp_path / "store").exists()
    assert not (tmp_path / "nothing").exists()


def test_a_remote_of_another_version(store: Store, tmp_path: Path, folder: Path) -> None:
    push_all(store, folder)
    (folder / ".format.json").write_text('{"format": 99}')
    for act in (lambda: pull_from(str(folder), Store(tmp_path / "fresh")), lambda: push_all(store, folder)):
        with pytest.raises(UserError, match=r"of another version of this package \(format 99, not \d+\)"):
            act()


@pytest.mark.parametrize("marker", [None, {"format": 1}])
def test_a_store_is_no_remote_and_a_remote_no_store(
    store: Store, tmp_path: Path, folder: Path, marker: dict[str, int] | None
) -> None:
    """Each holds what counts as damaged in the other. Earlier versions marked both alike."""
    open_store(store.root, expected=0)
    push_all(store, folder)
    other = Store(tmp_path / "other")
    publish_files(other, KEYS[0], FILES)
    for root in (store.root, folder) if marker else ():
        write_json(root / FILE, marker)
    before = bytes_of(store), bytes_of(Store(folder))
    # A store of an earlier version that is not marked at all is none either.
    for address in (store.root, other.root):
        with pytest.raises(UserError, match=f"^{address}: a store, not a remote; give the remote a folder of its own$"):
            push(other, Remote.open(str(address)), KEYS[:1])
    with pytest.raises(UserError, match=f"^{store.root}: a store, not a remote"):
        pull_from(str(store.root), other)
    for act in (open_store, check_store):
        with pytest.raises(UserError, match=f"^{folder}: a remote, not a store; give the store a folder of its own$"):
            act(folder, **({"expected": 0} if act is open_store else {}))
    assert (bytes_of(store), bytes_of(Store(folder))) == before
    # Each is still what it is.
    check_store(store.root)
    assert pull_from(str(folder), Store(tmp_path / "fresh"))[1] == []


def test_a_remote_has_a_folder_of_its_own(store: Store, address: str) -> None:
    place = Remote.open(address)
    place.write("photos/cat.png", b"cat")
    place.write(f"{KEYS[0]}/manifest.json", b"{}")
    with pytest.raises(UserError, match=f"^{address}: no remote, because it holds 'photos'; give the remote a folder"):
        push_all(store, address)
    assert (place.sizes("").keys(), place.read("photos/cat.png")) == ({"photos", KEYS[0]}, b"cat")
    assert sorted(push_all(store, f"{address}/own").moved) == [*KEYS]
    assert sorted(push_all(store, f"{address}/own").there) == [*KEYS]


def test_a_store_is_not_pushed_into_itself(store: Store, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(store.root)
    for address in (f"file://{store.root}", str(tmp_path / "link")):
        with pytest.raises(UserError, match=r"^.*: the store itself; give the remote a folder of its own$"):
            push_to(address, store, Artifacts(tmp_path / "artifacts"))


def test_a_file_system_without_links(
    store: Store, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    push_all(store, folder)
    monkeypatch.setattr(os, "link", refuse)
    fresh = Store(tmp_path / "fresh")
    assert pull_from(str(folder), fresh)[1] == []
    assert bytes_of(fresh) == bytes_of(store)


def test_an_empty_place_after_a_copy_by_other_means(store: Store, tmp_path: Path, folder: Path) -> None:
    """A remote is a plain folder, so a copy of it is a remote too."""
    push_all(store, folder)
    shutil.copytree(folder, tmp_path / "copied")
    fresh = Store(tmp_path / "fresh")
    assert pull_from(str(tmp_path / "copied"), fresh)[1] == []
    assert bytes_of(fresh) == bytes_of(store)
