"""What other machines and file systems do: a lock left behind, a clock set back, no hard links, no right to write."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.store import lease as leases
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.store.store import Store, discard
from robustfeatures.tools.status import Running, find_state
from robustfeatures.tools.verify import verify
from tests.conftest import Workspace
from tests.faults.conftest import Mount

LATER = 7 * 24 * 3600.0
ALL_THERE = r"study smoke: 44 of 44 artifacts are there\ncomputing until now: \d+ (s|min) \(.+\)\n"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def publish(store: Store, key: str) -> None:
    with store.lease(key) as lease:
        lease.fresh.mkdir()
        (lease.fresh / "rows.csv").write_text("content")
        store.publish(lease, {"content": "c", "built": {}})
        discard(lease.scratch)


def leave_lock(store: Store, key: str, seconds: float, host: str) -> Path:
    """A lease of `seconds` whose holder was killed on another machine."""
    code = (
        "import os, sys; from pathlib import Path; from robustfeatures.pipeline.store import lease, store\n"
        "lease.LEASE_SECONDS = float(sys.argv[3])\n"
        "held = store.Store(Path(sys.argv[1])).lease(sys.argv[2]); held.__enter__(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(store.root), key, str(seconds)], check=False)
    lock = store.scratch(key).with_suffix(".lock")
    text = lock.read_text()
    assert os.uname().nodename in text
    lock.write_text(text.replace(os.uname().nodename, host))
    return lock


@pytest.mark.parametrize("heard", [-LATER, 0.0, LATER])
def test_the_lock_of_a_dead_machine(store: Store, monkeypatch: pytest.MonkeyPatch, heard: float) -> None:
    """It is taken over after the time of the lease and not before, whatever the clock of the dead machine was."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 2.0)
    lock = leave_lock(store, "0123456789abcdef", 2.0, "a-machine-that-died")
    os.utime(lock, (time.time() + heard,) * 2)
    (store.scratch("0123456789abcdef") / "left").write_text("by the dead machine")
    began = time.monotonic()
    with store.lease("0123456789abcdef") as lease:
        waited = time.monotonic() - began
        # The work of the dead job is still there.
        assert (lease.scratch / "left").exists()
        discard(lease.scratch)
    assert 2.0 <= waited < 30.0
    publish(store, "0123456789abcdef")
    assert store.manifest("0123456789abcdef") is not None


def test_a_clock_that_goes_back_under_a_lease(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder keeps its lease and another job waits for it, although the time of day jumps."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 3.0)
    code = (
        "import sys, time; from pathlib import Path; from robustfeatures.pipeline.store import lease, store\n"
        "lease.LEASE_SECONDS = 3.0; now = time.time; time.time = lambda: now() - 7 * 24 * 3600\n"
        "with store.Store(Path(sys.argv[1])).lease('0123456789abcdef') as held:\n"
        "    print('held', flush=True); time.sleep(8); (held.scratch / 'done').touch()"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(store.root)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - LATER)
    with store.lease("0123456789abcdef") as lease:
        assert (lease.scratch / "done").exists()
        discard(lease.scratch)
    assert holder.wait() == 0


@pytest.mark.parametrize("heard", [-LATER, LATER])
def test_status_shows_no_job_that_is_not_there(store: Store, heard: float) -> None:
    lock = leave_lock(store, "0123456789abcdef", 120.0, "a-machine-that-died")
    report = {"stage": "model", "label": "m", "share": 0.5, "seconds_left": 3.0, "process": 1}
    (store.scratch("0123456789abcdef") / "progress.json").write_text(json.dumps(report))
    nothing = Plan({}, ()), Artifacts(store.root / "artifacts"), store
    assert find_state(*nothing).running == [Running("0123456789abcdef", 1, "model", "m", 0.5, 3.0)]
    os.utime(lock, (time.time() + heard,) * 2)
    assert find_state(*nothing).running == []


@pytest.mark.slow
def test_files_from_the_future(built: Workspace) -> None:
    """The clock was set back by a week after the study was built. Only a change makes anything again."""
    results, payloads = built.folder / "results", built.payloads()
    for path in results.rglob("*"):
        if path.is_file():
            os.utime(path, (path.stat().st_mtime + LATER,) * 2)
    payloads = built.payloads()
    assert "Nothing to be done" in (done := built.snakemake()).stdout + done.stderr
    assert built.payloads() == payloads
    table = (results / "smoke/tables/A2.csv").read_bytes()
    # A change makes one model, its evaluation and its views again. Undoing it makes only the views again.
    for old, new, made in (("0.01", "0.02", 2), ("0.02", "0.01", 0)):
        before = len(built.payloads())
        for path in (results / "artifacts").rglob("*.json"):
            os.utime(path, (time.time() + LATER,) * 2)
        built.edit("workflow/studies/smoke.yaml", f"learning_rate: {old}\n", f"learning_rate: {new}\n")
        built.snakemake()
        assert len(built.payloads()) - before == made
        assert "Nothing to be done" in (done := built.snakemake()).stdout + done.stderr
    assert (results / "smoke/tables/A2.csv").read_bytes() == table
    assert re.fullmatch(ALL_THERE, built.command("status").stdout)


@pytest.mark.slow
def test_a_single_figure_from_the_future(built: Workspace) -> None:
    """The clock is set back, and then a change is undone. The figure is drawn again, although its files look newer."""
    figure = "results/smoke/figures/B1.png"
    before = (built.folder / figure).read_bytes()
    built.edit("workflow/studies/smoke.yaml", "learning_rate: 0.01\n", "learning_rate: 0.02\n")
    built.snakemake(figure)
    assert (built.folder / figure).read_bytes() != before
    for path in (built.folder / "results").rglob("*.*"):
        if path.is_file() and "store" not in path.parts:
            os.utime(path, (time.time() + LATER,) * 2)
    built.edit("workflow/studies/smoke.yaml", "learning_rate: 0.02\n", "learning_rate: 0.01\n")
    built.snakemake(figure)
    assert (built.folder / figure).read_bytes() == before


@pytest.mark.slow
def test_a_single_figure_from_the_future_without_the_records_of_snakemake(built: Workspace) -> None:
    """A change is made, undone and made again. The figure is drawn again, although its files look newer."""
    figure, shown = "results/smoke/figures/B1.png", []
    for old, new in (("0.01", "0.02"), ("0.02", "0.01"), ("0.01", "0.02")):
        built.edit("workflow/studies/smoke.yaml", f"learning_rate: {old}\n", f"learning_rate: {new}\n")
        built.snakemake(figure)
        shown.append((built.folder / figure).read_bytes())
        shutil.rmtree(built.folder / ".snakemake")
        for path in (built.folder / "results").rglob("*.*"):
            if path.is_file() and "store" not in path.parts:
                os.utime(path, (time.time() + LATER,) * 2)
    assert shown[0] != shown[1]
    assert shown[0] == shown[2]


def test_without_hard_links(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on vfat or some network mounts. Another job still takes over the lock of a dead process."""
    asked = []

    def refuse(*paths: object, **options: object) -> None:
        asked.append(paths)
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(leases, "LEASE_SECONDS", 1.0)
    publish(store, "1111111111111111")
    lock = leave_lock(store, "2222222222222222", 1.0, os.uname().nodename)
    assert lock.exists()
    publish(store, "2222222222222222")
    leave_lock(store, "3333333333333333", 1.0, "a-machine-that-died")
    publish(store, "3333333333333333")
    store.set_aside(store.payload("1111111111111111"))
    publish(store, "1111111111111111")
    assert [
        store.manifest(key) is not None for key in ("1111111111111111", "2222222222222222", "3333333333333333")
    ] == [True] * 3
    assert list(verify(store)) == []
    print(f"hard links asked for: {len(asked)}")


def test_stages_where_links_are_refused(built: Workspace) -> None:
    """Without hard links zarr writes original and derived data with the same content."""
    code = (
        "import os, sys\ndef refuse(*paths, **options): raise OSError(95, 'Operation not supported')\n"
        "os.link = refuse\nfrom robustfeatures.cli import main\nmain()"
    )
    environment = {"PYTHONPATH": str(built.folder / "src"), "PATH": "/usr/bin:/bin"}
    for artifact in ("data/digits", "derived/digits-D_rand-seed0"):
        (reference,) = (built.folder / "results/artifacts").glob(f"{artifact}-*.json")
        facts = json.loads(reference.read_text())
        Store(built.store).remove(facts["key"])
        reference.unlink()
        command = [sys.executable, "-c", code, "build", str(reference.relative_to(built.folder))]
        done = subprocess.run(command, cwd=built.folder, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(reference.read_text())["content"] == facts["content"]


@pytest.mark.slow
def test_a_store_that_may_only_be_read(built: Workspace, tmp_path: Path, mount: Mount) -> None:
    """A fresh checkout makes its tables from a shared store that has everything, and writes nothing there."""
    other = tmp_path / "other"
    shutil.copytree(built.folder, other, ignore=shutil.ignore_patterns("results", ".snakemake"))
    fresh = Workspace(other)
    shared = tmp_path / "shared"
    shared.mkdir()
    mount(shared, "--bind", str(built.store))
    mount(shared, "-o", "remount,ro,bind")
    with pytest.raises(OSError, match="Read-only"):
        (shared / "x").touch()
    fresh.edit("config.yaml", "store: results/store", f"store: {shared}")
    before = sorted(str(path.relative_to(built.store)) for path in built.store.rglob("*"))
    done = fresh.snakemake()
    assert "0 payloads computed" in done.stdout + done.stderr
    assert sorted(str(path.relative_to(built.store)) for path in built.store.rglob("*")) == before
    assert not (other / "results/store").exists()
    for path in (built.folder / "results/smoke").rglob("*"):
        if path.suffix in (".csv", ".md"):
            assert (other / path.relative_to(built.folder)).read_bytes() == path.read_bytes()
    assert fresh.command("verify").returncode == 0
    assert re.fullmatch(ALL_THERE, fresh.command("status").stdout)
    # A payload that the store lacks cannot be made there, says a dry run: one line, and nothing else changes.
    fresh.edit("workflow/studies/smoke.yaml", "learning_rate: 0.01\n", "learning_rate: 0.02\n")
    lacking = fresh.snakemake("-n", check=False)
    assert lacking.returncode != 0
    text = lacking.stdout + lacking.stderr
    assert "Traceback" not in text
    assert any(line.startswith(f"{shared}: root may not write here") for line in text.splitlines())
    assert sorted(str(path.relative_to(built.store)) for path in built.store.rglob("*")) == before
