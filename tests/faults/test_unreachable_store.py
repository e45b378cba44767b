"""A store that cannot be read is not a store without payloads: nothing is dropped, moved or made again."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from robustfeatures.errors import UserError
from robustfeatures.files import write_json
from robustfeatures.pipeline.store.format import FILE, check_store, open_store
from robustfeatures.pipeline.store.sealed import MANIFEST
from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.verify import verify
from tests.conftest import REPOSITORY, Workspace
from tests.faults.conftest import Bindfs
from tests.faults.test_machines import publish
from tests.stores import publish_again

CODES = (errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOTCONN)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    publish(store, "0123456789abcdef")
    return store


def fail(monkeypatch: pytest.MonkeyPatch, bad: Path, code: int) -> None:
    """Let every read of a file fail, as on a bad disk or a lost server."""
    before = {name: getattr(Path, name) for name in ("open", "read_bytes", "stat")}

    def wrap(name: str):  # noqa: ANN202
        def call(path: Path, *arguments: object, **options: object) -> object:
            if path == bad:
                raise OSError(code, "it failed", str(path))
            return before[name](path, *arguments, **options)

        return call

    for name in before:
        monkeypatch.setattr(Path, name, wrap(name))


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("name", [MANIFEST, "rows.csv"])
def test_an_error_is_no_absence(store: Store, monkeypatch: pytest.MonkeyPatch, code: int, name: str) -> None:
    path = store.payload("0123456789abcdef") / name
    with monkeypatch.context() as broken:
        fail(broken, path, code)
        with pytest.raises(OSError, match="it failed") as caught:
            store.manifest("0123456789abcdef")
        assert (caught.value.errno, caught.value.filename) == (code, str(path))
        with pytest.raises(UserError, match="the payload there may be whole and is left in its place"):
            publish(store, "0123456789abcdef")
        with pytest.raises(UserError, match="files that cannot be read, in 1 payload, are left"):
            list(verify(store, repair=True))
    assert store.manifest("0123456789abcdef") is not None
    assert not list(store.root.glob(".damaged-*"))


def test_repair_leaves_what_cannot_be_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(store, "0000000000000000")
    (store.payload("0000000000000000") / "rows.csv").chmod(0o644)
    (store.payload("0000000000000000") / "rows.csv").write_text("CONTENT")
    path = store.payload("0123456789abcdef") / "rows.csv"
    lines: list[str] = []
    with monkeypatch.context() as broken:
        fail(broken, path, errno.EIO)
        with pytest.raises(UserError, match="files that cannot be read, in 1 payload, are left"):
            lines.extend(verify(store, repair=True))
    damaged, moved, *unread = lines
    assert damaged.endswith("rows.csv: damaged")
    assert moved.startswith(f"moved {store.payload('0000000000000000')} to ")
    assert set(unread) == {f"{path}: it failed"}
    assert store.payload_keys() == ["0123456789abcdef"]


def test_a_payload_in_place_is_moved_for_confirmed_damage_only(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.lease("0123456789abcdef") as lease:
        lease.fresh.mkdir()
        (lease.fresh / "rows.csv").write_text("other")
        fail(monkeypatch, store.payload("0123456789abcdef") / "rows.csv", errno.EIO)
        with pytest.raises(UserError, match="the payload there may be whole and is left in its place"):
            store.publish(lease, {"content": "other", "built": {}})
    monkeypatch.undo()
    manifest = store.manifest("0123456789abcdef")
    assert manifest is not None
    assert manifest["content"] == "c"


def test_the_users_own_folders_are_no_payloads(tmp_path: Path) -> None:
    """`gc --delete` with a wrong --store must not remove them."""
    own = tmp_path / "own"
    (own / "photos").mkdir(parents=True)
    (own / "photos" / "cat.png").touch()
    with pytest.raises(
        UserError, match=r"own: no store, because it holds 'photos'; give the store a folder of its own"
    ):
        open_store(own, expected=0)
    assert list(own.iterdir()) == [own / "photos"]
    for command in (["gc", "--everyone", "--delete"], ["verify", "--repair"]):
        arguments = [sys.executable, "-m", "robustfeatures", *command, "--store", str(own)]
        done = subprocess.run(arguments, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"robustfeatures: {own}: there is no store here; is its file system mounted" in done.stderr
        assert (own / "photos" / "cat.png").exists()
    # Nor in a store.
    store = Store(tmp_path / "store")
    open_store(store.root, expected=0)
    publish(store, "0123456789abcdef")
    (store.root / "photos").mkdir()
    assert store.payload_keys() == ["0123456789abcdef"]
    assert list(verify(store, repair=True)) == []
    # A file system may begin with a folder of its own.
    disk = tmp_path / "disk"
    (disk / "lost+found").mkdir(parents=True)
    open_store(disk, expected=0)


def test_a_folder_becomes_a_store_only_if_none_is_expected(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with pytest.raises(UserError, match="there is no store here; is its file system mounted"):
        check_store(root)
    with pytest.raises(UserError, match="there is no store here, but 3 references point into it"):
        open_store(root, expected=3)
    assert not root.exists()
    open_store(root, expected=0)
    check_store(root)
    # Later also an empty one is known.
    open_store(root, expected=3)
    write_json(root / FILE, {"format": 2})
    for call in (check_store, lambda root: open_store(root, expected=0)):
        with pytest.raises(UserError, match=r"another version of this package \(format 2, not 1\)"):
            call(root)
    (root / FILE).write_text("")
    with pytest.raises(UserError, match=r"\.format\.json: damaged"):
        check_store(root)


def references(workspace: Workspace) -> dict[str, bytes]:
    folder = workspace.folder / "results/artifacts"
    return {str(path): path.read_bytes() for path in folder.glob("[dem]*/*.json")}


def test_a_dead_mount_drops_no_reference(built: Workspace, tmp_path: Path, bindfs: Bindfs) -> None:
    place = tmp_path / "mount"
    process = bindfs(place, built.store)
    built.edit("config.yaml", "store: results/store", f"store: {place}")
    before = references(built)
    assert len(before) > 10
    built.snakemake("-n")
    (data,) = (built.folder / "results/artifacts/data").glob("*.json")
    for state, expected in (("dead", "Transport endpoint is not connected"), ("not mounted", "there is no store here")):
        if state == "dead":
            process.kill()
            process.wait()
        else:
            subprocess.run(["umount", "--lazy", str(place)], check=True)
        done = built.snakemake("-n", check=False)
        assert done.returncode != 0
        text = done.stdout + done.stderr
        assert "Traceback" not in text
        assert any(str(place) in line and expected in line for line in text.splitlines()), text
        job = built.command("build", str(data.relative_to(built.folder)), "--store", str(place))
        assert job.returncode == 1
        (line,) = job.stderr.splitlines()
        assert line.startswith(f"robustfeatures: {place}")
        assert expected in line
        assert references(built) == before
    assert not list(place.iterdir())


def test_a_payload_of_other_content_is_not_used(built: Workspace) -> None:
    """It was lost, and another machine made it again with other bytes under the same key."""
    (reference,) = (built.folder / "results/artifacts/data").glob("digits-*.json")
    facts = json.loads(reference.read_text())
    store = Store(built.store)
    publish_again(store, facts["key"], lambda folder: "0" * len(facts["content"]))
    (model,) = (built.folder / "results/artifacts/model").glob("digits-standard-seed0-*.json")
    store.remove(json.loads(model.read_text())["key"])
    done = built.command("build", str(model.relative_to(built.folder)))
    assert done.returncode == 1
    assert "holds other content than the reference says" in done.stderr
    before = set(references(built))
    built.snakemake("-n")
    # The data have a new reference. All that was made of the former content is to be made again.
    assert json.loads(reference.read_text())["content"] == "0" * len(facts["content"])
    left = references(built)
    assert len(left) < len(before)
    assert all(json.loads(content)["recipe"]["inputs"] == {} for content in left.values())
