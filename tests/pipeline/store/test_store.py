"""The store under trouble: two makers, damage, a full disk, and a folder that cannot be written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import zarr

from robustfeatures.errors import UserError
from robustfeatures.files import write_atomically
from robustfeatures.pipeline.store import store as store_module
from robustfeatures.pipeline.store.content import content_digest
from robustfeatures.pipeline.store.store import Store, discard
from robustfeatures.tools.gc import leftovers
from robustfeatures.tools.verify import verify
from tests.conftest import Workspace

FACTS = {"content": "c", "built": {}}


def publish(store: Store, key: str, text: str = "content") -> None:
    with store.lease(key) as lease:
        fresh = lease.fresh
        fresh.mkdir()
        (fresh / "rows.csv").write_text(text)
        (fresh / "deep").mkdir()
        (fresh / "deep" / "file").write_text("deep")
        store.publish(lease, FACTS)
        discard(lease.scratch)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_a_published_payload_is_whole_and_read_only(store: Store) -> None:
    assert store.manifest("0123456789abcdef") is None
    publish(store, "0123456789abcdef")
    manifest = store.manifest("0123456789abcdef")
    assert manifest is not None
    assert set(manifest["files"]) == {"rows.csv", "deep/file"}
    paths = [store.payload("0123456789abcdef"), *store.payload("0123456789abcdef").rglob("*")]
    assert not any(path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) for path in paths)
    assert store.payload_keys() == ["0123456789abcdef"]
    assert list(verify(store)) == []


def test_a_failed_publication_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, value: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(store_module, "write_sealed", full)
    with pytest.raises(OSError, match="No space left"):
        publish(store, "0123456789abcdef")
    assert store.payload_keys() == []
    assert store.manifest("0123456789abcdef") is None
    monkeypatch.undo()
    discard(store.scratch("0123456789abcdef"))
    publish(store, "0123456789abcdef")
    assert store.manifest("0123456789abcdef") is not None


def test_verify_names_an_added_file(store: Store) -> None:
    for key in ("1111111111111111", "2222222222222222"):
        publish(store, key)
    folder = store.payload("1111111111111111")
    folder.chmod(0o755)
    (folder / "extra").write_text("x")
    (line,) = verify(store)
    assert str(folder / "extra") in line
    # What is listed is whole.
    assert store.manifest("1111111111111111") is not None


def test_a_payload_under_the_key_of_another_is_damage(store: Store) -> None:
    """As after a copy by hand."""
    publish(store, "1111111111111111")
    store.payload("1111111111111111").rename(store.payload("2222222222222222"))
    (line,) = verify(store)
    assert line.endswith("2222222222222222/manifest.json: of the payload 1111111111111111, which was put in this place")
    assert store.manifest("2222222222222222") is None


def test_a_link_in_place_of_a_payload_is_removed_and_its_target_stays(store: Store, tmp_path: Path) -> None:
    publish(store, "0123456789abcdef")
    elsewhere = store.payload("0123456789abcdef").rename(tmp_path / "elsewhere")
    store.payload("0123456789abcdef").symlink_to(elsewhere)
    store.remove("0123456789abcdef")
    assert not [path for path in store.root.iterdir() if path.name != ".partial"]
    assert (elsewhere / "rows.csv").read_text() == "content"


def test_a_damaged_payload_is_replaced(store: Store) -> None:
    publish(store, "0123456789abcdef", "first")
    (store.payload("0123456789abcdef") / "rows.csv").chmod(0o644)
    (store.payload("0123456789abcdef") / "rows.csv").write_text("")
    assert store.manifest("0123456789abcdef") is None
    publish(store, "0123456789abcdef", "second")
    assert store.manifest("0123456789abcdef") is not None
    assert (store.payload("0123456789abcdef") / "rows.csv").read_text() == "second"


def test_work_left_by_a_kill_just_after_publication_is_known(store: Store) -> None:
    publish(store, "0123456789abcdef")
    assert leftovers(store, unfinished=True, everyone=True) == []
    for key in ("0123456789abcdef", "unpublished", "under-way"):
        store.block(key, "train-0").parent.mkdir(parents=True)
    (store.root / ".removed-gone").mkdir()
    with store.lease("under-way", "train-1"):
        useless = [store.root / ".removed-gone", store.scratch("0123456789abcdef")]
        assert leftovers(store, unfinished=False) == useless
        # Another may go on from young work.
        assert leftovers(store, unfinished=True) == useless
        assert leftovers(store, unfinished=True, everyone=True) == [*useless, store.scratch("unpublished")]
        week_ago = time.time() - 8 * 24 * 3600
        for path in (store.scratch("unpublished"), *store.scratch("unpublished").iterdir()):
            os.utime(path, (week_ago, week_ago))
        assert leftovers(store, unfinished=True) == [*useless, store.scratch("unpublished")]


MAKE_ONCE = """
import sys, time
from pathlib import Path
from robustfeatures.pipeline.store.store import Store, discard

store, counter = Store(Path(sys.argv[1])), Path(sys.argv[2])
if store.manifest("0123456789abcdef") is None:
    with store.lease("0123456789abcdef") as lease:
        if store.manifest("0123456789abcdef") is None:
            with counter.open("a") as file:
                file.write("x")
            time.sleep(0.3)
            lease.fresh.mkdir()
            (lease.fresh / "rows.csv").write_text("content")
            store.publish(lease, {"content": "c", "built": {}})
        discard(lease.scratch)
"""


def test_of_many_makers_one_makes(store: Store, tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAKE_ONCE, str(store.root), str(tmp_path / "counter")]
    makers = [subprocess.Popen(command) for _ in range(4)]
    assert [maker.wait() for maker in makers] == [0] * 4
    assert (tmp_path / "counter").read_text() == "x"
    assert store.manifest("0123456789abcdef") is not None


def test_the_lease_of_a_dead_process_is_taken_over(store: Store) -> None:
    code = (
        "import os, sys; from pathlib import Path; from robustfeatures.pipeline.store.store import Store\n"
        "lease = Store(Path(sys.argv[1])).lease('0123456789abcdef'); lease.__enter__(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(store.root)], check=False)
    assert store.scratch("0123456789abcdef").with_suffix(".lock").exists()
    began = time.monotonic()
    publish(store, "0123456789abcdef")
    assert time.monotonic() - began < 10


def test_verify_of_no_store(store: Store) -> None:
    with pytest.raises(UserError, match="there is no store here"):
        list(verify(store))


def test_content_is_what_is_said_not_how_it_is_stored(tmp_path: Path) -> None:
    values = np.arange(600, dtype=np.float32).reshape(100, 6)

    def written(name: str, array: np.ndarray, **layout: object) -> str:
        group = zarr.create_group(store=tmp_path / name)
        stored = group.create_array("x", shape=array.shape, dtype=array.dtype, **layout)  # type: ignore[arg-type]
        stored[...] = array
        return content_digest(tmp_path / name)

    plain = written("a.zarr", values, chunks=(100, 6))
    assert plain == written("b.zarr", values, chunks=(7, 3), compressors=None)
    assert plain == written("c.zarr", values, chunks=(10, 6), shards=(100, 6))
    changed = values.copy()
    changed[50, 3] += 1
    assert plain != written("d.zarr", changed, chunks=(100, 6))
    assert plain != written("e.zarr", values.astype(np.float64), chunks=(100, 6))
    assert plain != written("f.zarr", values.reshape(50, 12), chunks=(50, 12))


def test_content_is_that_of_every_block_of_every_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of 40 rows, read in blocks of 10: a change at the ends of blocks and shards is another content."""
    monkeypatch.setattr("robustfeatures.pipeline.store.content.BLOCK_BYTES", 10 * 6 * 4)
    digests = set()
    for row in (None, 0, 9, 10, 39, 40, 79, 80, 99):
        values = np.arange(600, dtype=np.float32).reshape(100, 6)
        if row is not None:
            values[row, 5] += 1
        group = zarr.create_group(store=tmp_path / f"{row}.zarr")
        stored = group.create_array("x", shape=values.shape, dtype=values.dtype, chunks=(4, 6), shards=(40, 6))
        stored[...] = values
        digests.add(content_digest(tmp_path / f"{row}.zarr"))
    assert len(digests) == 9


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


def test_on_a_read_only_disk_the_error_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, *arguments: object, **options: object) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "open", fail)
    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(OSError, match="Read-only") as caught:
        write_atomically(tmp_path / "file", b"new")
    assert caught.value.filename == str(tmp_path / "file")


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A file system of 400 KiB, where the tests may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=False)


def test_a_full_disk_is_one_line_and_leaves_nothing_half_published(workspace: Workspace, small_disk: Path) -> None:
    workspace.edit("config.yaml", "store: results/store", f"store: {small_disk}/store")
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 350_000)
    workspace.plan()
    (plan,) = (workspace.folder / "results/artifacts/.plan/data").glob("*.json")
    reference = f"results/artifacts/data/{plan.name}"
    done = workspace.command("build", reference, "--store", f"{small_disk}/store")
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()[-1:]
    assert line.startswith("robustfeatures: ")
    assert "No space left on device" in line
    assert not (workspace.folder / reference).exists()
    assert Store(small_disk / "store").payload_keys() == []
    filler.unlink()
    again = workspace.command("build", reference, "--store", f"{small_disk}/store")
    assert again.returncode == 0, again.stderr
    assert list(verify(Store(small_disk / "store"))) == []


def test_a_store_that_cannot_be_written_is_one_line(workspace: Workspace) -> None:
    workspace.plan()
    (plan,) = (workspace.folder / "results/artifacts/.plan/data").glob("*.json")
    # No one may make folders in /proc, not even root.
    done = workspace.command("build", f"results/artifacts/data/{plan.name}", "--store", "/proc/store")
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()[-1:]
    assert line.startswith("robustfeatures: /proc/store")


def test_results_that_cannot_be_written_are_one_line(workspace: Workspace) -> None:
    (workspace.folder / "results").write_text("a file where a folder should be")
    done = workspace.snakemake("-n", check=False)
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    assert any("results" in line and "Not a directory" in line for line in text.splitlines())
