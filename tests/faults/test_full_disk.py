"""A disk that is full while a checkpoint, a payload or a table is written: one line, nothing half-done."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from robustfeatures.pipeline.run.checkpoints import Checkpoints
from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.verify import verify
from tests.conftest import Workspace
from tests.faults.conftest import Mount

FULL = "No space left on device"


def fill(disk: Path, *, leave: int = 0) -> Path:
    """Fill a small disk up to `leave` bytes."""
    filler = disk / "filler"
    filler.write_bytes(b"x" * max(0, shutil.disk_usage(disk).free - leave))
    return filler


@pytest.fixture
def disk(tmp_path: Path, mount: Mount) -> Path:
    """A file system of 4 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount(place, "-t", "tmpfs", "-o", "size=4m", "tmpfs")
    return place


def model_job(built: Workspace, disk: Path) -> tuple[list[str], Path, dict[str, str]]:
    """The arguments that train a model into a store on the small disk, its reference, and its former content."""
    (data,) = (built.folder / "results/artifacts/data").glob("*.json")
    (reference,) = (built.folder / "results/artifacts/model").glob("digits-standard-seed0-*.json")
    key = json.loads(data.read_text())["key"]
    shutil.copytree(built.store / key, disk / "store" / key)
    shutil.copy(built.store / ".format.json", disk / "store")
    facts = json.loads(reference.read_text())
    reference.unlink()
    return ["build", str(reference.relative_to(built.folder)), "--store", str(disk / "store")], reference, facts


def test_while_a_checkpoint_is_written(tmp_path: Path, disk: Path) -> None:
    kept = Checkpoints(disk)
    kept.save({"step": 1})
    before = kept.path.read_bytes()
    fill(disk)
    with pytest.raises(OSError, match=FULL) as caught:
        kept.save({"step": 2, "weights": [0.5] * 100_000})
    assert caught.value.filename == str(disk / "checkpoint-fresh.pt")
    assert kept.path.read_bytes() == before
    assert sorted(path.name for path in disk.iterdir()) == ["checkpoint.pt", "filler"]


def test_a_training_whose_checkpoint_finds_no_room(built: Workspace, disk: Path) -> None:
    built.environment["ROBUSTFEATURES_CHECKPOINT_SECONDS"] = "0"
    arguments, reference, facts = model_job(built, disk)
    # Room for the lock, not for the weights and velocities of a checkpoint.
    filler = fill(disk, leave=8192)
    done = built.command(*arguments)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line == f"robustfeatures: {disk}/store/.partial/{facts['key']}/checkpoint-fresh.pt: {FULL}"
    assert not reference.exists()
    assert len(Store(disk / "store").payload_keys()) == 1
    filler.unlink()
    assert built.command(*arguments).returncode == 0
    assert json.loads(reference.read_text())["content"] == facts["content"]
    assert list(verify(Store(disk / "store"))) == []


def test_while_a_payload_is_published(built: Workspace, disk: Path) -> None:
    arguments, reference, facts = model_job(built, disk)
    stopped = 0
    rooms = (4096, 8192, 12288, 16384, 20480, 24576, 28672, 32768, 36864)
    for leave in rooms:
        filler = fill(disk, leave=leave)
        done = built.command(*arguments)
        if done.returncode == 0:
            break
        (line,) = done.stderr.splitlines()
        assert line.startswith("robustfeatures: ")
        assert line.endswith(FULL)
        stopped += 1
        assert not reference.exists()
        assert len(Store(disk / "store").payload_keys()) == 1
        assert Store(disk / "store").manifest(facts["key"]) is None
        filler.unlink()
    else:
        pytest.fail("no room was enough")
    print(f"{stopped} full disks on the way to a published payload, each of them one line")
    assert stopped >= 2
    assert json.loads(reference.read_text())["content"] == facts["content"]
    assert list(verify(Store(disk / "store"))) == []


def test_while_a_table_is_written(built: Workspace, disk: Path) -> None:
    """Tables, references and logs on the full disk; the store elsewhere."""
    store, results = built.folder / "store", built.folder / "results"
    built.store.rename(store)
    built.edit("config.yaml", "store: results/store", "store: store")
    before = {path.name: path.read_bytes() for path in (results / "smoke").rglob("*.*")}
    shutil.copytree(results, disk / "results")
    shutil.rmtree(results)
    results.symlink_to(disk / "results")
    (reference,) = (results / "artifacts/table").glob("smoke-A1-*.json")
    arguments = ("view", f"results/artifacts/table/{reference.name}", "--store", "store", "--log", "results/logs/t.log")
    for path in (reference, *(results / "smoke/tables").glob("A1.*")):
        path.unlink()
    filler = fill(disk)
    done = built.command(*arguments)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line == f"robustfeatures: results/smoke/tables/A1.csv: {FULL}"
    assert not reference.exists()
    assert not list((results / "smoke/tables").glob("*A1*"))
    filler.unlink()
    assert built.command(*arguments).returncode == 0
    assert {path.name: path.read_bytes() for path in (results / "smoke").rglob("*.*")} == before
