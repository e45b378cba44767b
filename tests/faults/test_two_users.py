"""Two users of one group share a store: each goes on from the other's work. What a user keeps private stays private."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.verify import verify
from tests.faults.conftest import Bindfs

GROUP = 54321
ANNA, BEN = 54322, 54323

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")

# All is imported before the rights of root are given up, because the package may lie where others cannot read.
PROLOGUE = """
import io, os, sys
from pathlib import Path
import numpy as np
import torch
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.errors import UserError
from robustfeatures.pipeline.run.blocks import Blocks, Share
from robustfeatures.pipeline.run.checkpoints import Checkpoints
from robustfeatures.pipeline.store.datasets import ShardedSplit, join_shards, write_shard
from robustfeatures.pipeline.store.store import Store, discard

# torch imports some of itself when it first saves.
torch.save({}, buffer := io.BytesIO()); torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)
user, group = map(int, sys.argv[2:4])
os.umask(int(sys.argv[4], 8)); os.setgroups([group]); os.setgid(group); os.setuid(user)
store = Store(Path(sys.argv[1]))
images = np.arange(8, dtype=np.float32).reshape(4, 2, 1, 1) / 8

def publish(lease, text):
    lease.fresh.mkdir()
    (lease.fresh / "deep").mkdir()
    (lease.fresh / "deep" / "rows.csv").write_text(text)
    return store.publish(lease, {"content": text, "built": {}})

def make(name, path):
    write_shard(path, "train", int(name), images[int(name) * 2:][:2], shape=images.shape, shard_rows=2)
"""
JOIN = """
with store.lease("0123456789abcdef") as lease:
    blocks = Blocks(store, "0123456789abcdef", Share(1, 1))
    blocks.finish(["0", "1"], make)
    blocks.check(["0", "1"])
    paths = [blocks.path(name) for name in "01"]
    split = ShardedSplit(images.shape, images.dtype, np.zeros(4, np.int64), {}, ("a",), 2, paths)
    join_shards(lease.fresh / "data.zarr", {"train": split})
    store.publish(lease, {"content": "c", "built": {}})
    discard(lease.scratch)
"""


def act(user: int, store: Store, call: str, *, umask: str = "002", group: int = GROUP) -> str:
    """Run code as a user; returns what it printed."""
    command = [sys.executable, "-c", PROLOGUE + call, str(store.root), str(user), str(group), umask]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 9), done.stderr
    return done.stdout


@pytest.fixture
def shared(open_folder: Path) -> Store:
    root = open_folder / "store"
    root.mkdir()
    shutil.chown(root, group=GROUP)
    root.chmod(0o2775)
    return Store(root)


def owners(folder: Path) -> set[int]:
    return {path.stat().st_uid for path in (folder, *folder.rglob("*"))}


def test_one_goes_on_from_the_checkpoint_of_the_other(shared: Store) -> None:
    act(
        ANNA,
        shared,
        "held = store.lease('0123456789abcdef'); Checkpoints(held.__enter__().scratch).save({'step': 7}); os._exit(9)",
    )
    assert owners(shared.scratch("0123456789abcdef")) == {ANNA}
    code = (
        "with store.lease('0123456789abcdef') as lease:\n"
        "    kept = Checkpoints(lease.scratch)\n"
        "    print(kept.load(torch.device('cpu'))['step'])\n"
        "    kept.save({'step': 8})\n"
        "    publish(lease, 'c'); discard(lease.scratch)"
    )
    assert act(BEN, shared, code) == "7\n"
    assert owners(shared.payload("0123456789abcdef")) == {BEN}
    assert not shared.scratch("0123456789abcdef").exists()
    assert list(verify(shared)) == []


@pytest.mark.parametrize("umask", ["002", "022"])
def test_one_joins_the_blocks_of_the_other(shared: Store, umask: str) -> None:
    act(ANNA, shared, "Blocks(store, '0123456789abcdef', Share(1, 2)).finish(['0', '1'], make)")
    for folder in (shared.scratch("0123456789abcdef"), shared.scratch("0123456789abcdef") / "blocks"):
        folder.chmod(0o2775)
    assert owners(shared.scratch("0123456789abcdef") / "blocks") == {ANNA}
    act(BEN, shared, JOIN, umask=umask)
    assert owners(shared.payload("0123456789abcdef")) == {BEN}
    assert list(verify(shared)) == []


def test_one_replaces_the_damaged_payload_of_the_other(shared: Store) -> None:
    act(ANNA, shared, "with store.lease('0123456789abcdef') as lease: publish(lease, 'first'); discard(lease.scratch)")
    rows = shared.payload("0123456789abcdef") / "deep" / "rows.csv"
    rows.write_text("damage")
    code = "with store.lease('0123456789abcdef') as lease: publish(lease, 'second'); discard(lease.scratch)"
    act(BEN, shared, code)
    assert rows.read_text() == "second"
    (aside,) = shared.root.glob(".damaged-0123456789abcdef-*")
    assert owners(aside) == {ANNA}
    assert list(verify(shared)) == []


def test_one_removes_a_payload_of_the_other_from_sight(shared: Store) -> None:
    act(ANNA, shared, "with store.lease('0123456789abcdef') as lease: publish(lease, 'first'); discard(lease.scratch)")
    act(BEN, shared, "store.remove('0123456789abcdef')")
    assert shared.payload_keys() == []


@pytest.mark.parametrize(
    ("umask", "folders", "files"), [("077", 0o500, 0o400), ("022", 0o555, 0o444), ("007", 0o550, 0o440)]
)
def test_rights_follow_the_umask(open_folder: Path, umask: str, folders: int, files: int) -> None:
    own = Store(open_folder / "store")
    own.root.mkdir()
    shutil.chown(own.root, user=ANNA)
    act(
        ANNA,
        own,
        "with store.lease('0123456789abcdef') as lease: publish(lease, 'c'); discard(lease.scratch)",
        umask=umask,
    )
    place = own.payload("0123456789abcdef")
    for path in (place, *place.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (folders if path.is_dir() else files), path


def test_without_rights_nothing_is_computed(shared: Store) -> None:
    """Anna forgot her umask; a stranger is in no group."""
    code = "held = store.lease('0123456789abcdef'); (held.__enter__().scratch / 'blocks').mkdir(); os._exit(9)"
    act(ANNA, shared, code, umask="022")
    shared.scratch("0123456789abcdef").with_suffix(".lock").unlink()
    code = "try:\n    with store.lease('0123456789abcdef'): print('computed')\nexcept UserError as error: print(error)"
    advice = "may not write here; the store's owner must make its folders writable for the group (`chmod g+rwxs`)"
    for user, group, place in ((BEN, GROUP, shared.root / ".partial"), (BEN, BEN, shared.root)):
        (line,) = act(user, shared, code, group=group).splitlines()
        assert line.startswith(f"{place}: {user} {advice}")


def test_where_chmod_is_refused(open_folder: Path, bindfs: Bindfs) -> None:
    folder = open_folder / "folder"
    folder.mkdir()
    folder.chmod(0o777)
    bindfs(open_folder / "mount", folder, "--chmod-deny")
    probe = open_folder / "mount" / "probe"
    probe.touch()
    with pytest.raises(PermissionError):
        probe.chmod(0o444)
    store = Store(open_folder / "mount" / "store")
    act(ANNA, store, JOIN)
    act(ANNA, store, "with store.lease('ffffffffffffffff') as lease: publish(lease, 'c'); discard(lease.scratch)")
    assert store.payload_keys() == ["0123456789abcdef", "ffffffffffffffff"]
    assert not store.scratch("0123456789abcdef").exists()
    assert list(verify(store)) == []
