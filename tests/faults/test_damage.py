"""Damage every file of a store in turn: it is named, no job reads it, and the next run makes it again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from robustfeatures.errors import UserError
from robustfeatures.files import list_files
from robustfeatures.pipeline.store.format import open_store
from robustfeatures.pipeline.store.sealed import MANIFEST
from robustfeatures.pipeline.store.store import Finding, Store
from robustfeatures.pipeline.store.verified import check_file
from robustfeatures.tools.verify import verify
from tests.conftest import Workspace
from tests.faults.conftest import as_nobody
from tests.stores import publish_files

# Keys of payloads.
DATA, MODEL, EVALUATION = "d" * 16, "a" * 16, "e" * 16
PAYLOADS = {
    DATA: {"data.zarr/zarr.json": b"{}", "data.zarr/train/images/c/0/0/0/0": bytes(range(256))},
    MODEL: {"model.safetensors": b"weights" * 100, "history.csv": b"epoch,probe\n1,test\n"},
    EVALUATION: {"rows.csv": b"eps,correct,total\n0.0,1,2\n"},
}
TOPS = ("data.zarr", "model.safetensors", "history.csv", "rows.csv")


def publish(store: Store, key: str) -> None:
    # A number that JSON writes with an exponent, whose letter has two cases one bit apart.
    publish_files(store, key, PAYLOADS[key], content=key, built={"seconds": 1e-05})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    for key in PAYLOADS:
        publish(store, key)
    return store


def _writable(path: Path) -> None:
    path.parent.chmod(0o755)
    path.chmod(0o644)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    _writable(path)
    path.write_bytes(content)


def truncate(path: Path) -> None:
    _writable(path)
    path.write_bytes(path.read_bytes()[:-1])


def remove(path: Path) -> None:
    _writable(path)
    path.unlink()


def make_unreadable(path: Path) -> None:
    """Replace the file by a folder, which root cannot read as a file either."""
    remove(path)
    path.mkdir()


def read(store: Store, key: str) -> None:
    """Check a payload as a job does. Shards of images are checked when they are read."""
    for path in store.verified(key, key, TOPS):
        for shard in path.glob("*/images/c/*/*/*/*"):
            check_file(shard, store.manifest(key)["files"][str(shard.relative_to(store.payload(key)))]["sha256"])


DAMAGES: tuple[Callable[[Path], None], ...] = (flip_a_bit, truncate, remove, make_unreadable)


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_file_is_named_and_not_read(store: Store, damage: Callable[[Path], None]) -> None:
    paths = [path for key in PAYLOADS for path in list_files(store.payload(key))]
    assert len(paths) == 8
    named = stopped = rebuilt = 0
    for path in paths:
        key = path.relative_to(store.root).parts[0]
        whole = store.manifest(key)
        damage(path)
        # A wrong size is noticed without hashing, and the payload counts as missing.
        assert (store.manifest(key) is None) == (damage is not flip_a_bit or path.name == MANIFEST)
        (line,) = verify(store)
        named += line.startswith(f"{path}: ")
        with pytest.raises(UserError) as caught:
            read(store, key)
        message = str(caught.value)
        stopped += message.startswith(str(store.payload(key))) and "snakemake again" in message
        assert "\n" not in message
        found, moved = verify(store, repair=True)
        assert found == line
        aside = Path(moved.rpartition(" to ")[2])
        assert moved == f"moved {store.payload(key)} to {aside}"
        assert (aside / path.relative_to(store.payload(key))).exists() == (damage is not remove)
        assert list(verify(store)) == []
        publish(store, key)
        rebuilt += store.manifest(key) == whole
    assert list(verify(store)) == []
    # Nothing was deleted: every damaged payload lies where it was moved to.
    assert len(list(store.root.glob(".damaged-*"))) == len(paths)
    print(f"{damage.__name__}: {named} of {len(paths)} files named, {stopped} not read, {rebuilt} made again")
    assert named == stopped == rebuilt == len(paths)


def test_every_bit_of_a_manifest(store: Store) -> None:
    path = store.payload(MODEL) / MANIFEST
    whole = path.read_bytes()
    _writable(path)
    named = 0
    for bit in range(8 * len(whole)):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        named += list(store.find_damage(MODEL)) == [Finding(f"{path}: damaged")]
        assert store.manifest(MODEL) is None
    print(f"{named} of {8 * len(whole)} bits of a manifest named")
    assert named == 8 * len(whole)


def test_all_at_once(store: Store) -> None:
    paths = [path for key in PAYLOADS for path in list_files(store.payload(key)) if path.name != MANIFEST]
    for number, path in enumerate(paths):
        DAMAGES[number % len(DAMAGES)](path)
    assert [line.partition(": ")[0] for line in verify(store)] == sorted(map(str, paths))


def test_a_file_that_comes_back_changed_is_read_again(store: Store) -> None:
    """A process uses a known SHA-256 only while the file is unchanged."""
    path = store.payload(EVALUATION) / "rows.csv"
    assert store.verified(EVALUATION, EVALUATION, TOPS) == [path]
    flip_a_bit(path)
    with pytest.raises(UserError, match=r"rows\.csv: damaged"):
        store.verified(EVALUATION, EVALUATION, TOPS)


@pytest.mark.parametrize("what", ["files", "folders"])
def test_without_the_right_to_read(open_folder: Path, what: str) -> None:
    store = Store(open_folder / "store")
    open_store(store.root, expected=0)
    for key in PAYLOADS:
        publish(store, key)
    if what == "files":
        closed = expected = [store.payload(key) / name for key in PAYLOADS for name in PAYLOADS[key]]
    else:
        closed = [store.payload(DATA) / "data.zarr" / "train", store.payload(MODEL)]
        expected = [closed[0] / "images/c/0/0/0/0", closed[1] / MANIFEST]
    for path in closed:
        path.chmod(0)
    code = as_nobody(f"sys.argv = ['robustfeatures', 'verify', '--store', {str(store.root)!r}]; cli.main()")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    for path in closed:
        path.chmod(0o755)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines() == [f"{path}: Permission denied" for path in sorted(expected)]


def contents(workspace: Workspace) -> dict[str, str]:
    """The content digest of each artifact by its label."""
    references = map(Path.read_text, (workspace.folder / "results/artifacts").glob("[demv]*/*.json"))
    return {facts["label"]: facts["content"] for facts in map(json.loads, references)}


def payload_of(workspace: Workspace, artifact: str) -> Path:
    (reference,) = (workspace.folder / "results/artifacts").glob(f"{artifact}-*.json")
    return workspace.store / json.loads(reference.read_text())["key"]


def shown(workspace: Workspace) -> dict[str, bytes]:
    results = workspace.folder / "results/smoke"
    return {path.name: path.read_bytes() for path in results.rglob("*") if path.suffix in (".csv", ".md")}


@pytest.mark.slow
def test_damage_in_a_built_study(built: Workspace) -> None:
    """Damage is named, jobs stop, and one more run makes everything again, although every table is there."""
    before, tables = contents(built), shown(built)
    rows = payload_of(built, "evaluation/digits-standard-test-seed0") / "rows.csv"
    flip_a_bit(rows)
    (view,) = (built.folder / "results/artifacts/table").glob("smoke-A1-*.json")
    done = built.command("view", str(view.relative_to(built.folder)))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"{rows.relative_to(built.folder)}: damaged; run `robustfeatures verify --repair`" in line
    assert shown(built) == tables

    images = payload_of(built, "derived/digits-D_rand-robust-seed0") / "data.zarr/train/images/c/0/0/0/0"
    weights = payload_of(built, "model/digits-on-D_rand-downstream-seed0") / "model.safetensors"
    labels = payload_of(built, "derived/digits-D_rand-seed0") / "data.zarr/train/labels/zarr.json"
    flip_a_bit(images)
    # A job that would read the images: the model that was trained on them, made again.
    model = payload_of(built, "model/digits-on-D_rand-robust-downstream-seed0")
    (reference,) = (built.folder / "results/artifacts/model").glob("digits-on-D_rand-robust-downstream-seed0-*.json")
    kept = model.rename(built.folder / "kept")
    done = built.command("build", str(reference.relative_to(built.folder)))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"{images.relative_to(built.folder)}: damaged; run `robustfeatures verify --repair`" in line
    assert not model.exists()
    kept.rename(model)

    truncate(weights)
    remove(labels)
    damaged = {path.relative_to(built.folder) for path in (rows, images, weights, labels)}
    done = built.command("verify")
    assert done.returncode == 1
    assert {Path(line.partition(": ")[0]) for line in done.stdout.splitlines()} == damaged
    repaired = built.command("verify", "--repair")
    assert repaired.returncode == 0
    moved = [line for line in repaired.stdout.splitlines() if line.startswith("moved ")]
    assert len(moved) == len(damaged)
    assert built.command("verify").stdout == "every payload is whole\n"
    built.snakemake()
    assert contents(built) == before
    assert shown(built) == tables
    assert built.command("verify").stdout == "every payload is whole\n"
    print(f"{len(damaged)} of 4 damaged files named, moved aside and made again with the same content")


def test_damaged_records_are_named_or_stand_for_nothing(built: Workspace) -> None:
    """As after a power failure: an empty plan, an empty reference of an earlier page, a checkout's name in bytes."""
    artifacts = built.folder / "results/artifacts"
    (model,) = (artifacts / "model").glob("digits-standard-seed0-*.json")
    (data,) = (artifacts / "data").glob("digits-*.json")
    for path in (data, artifacts / ".plan" / data.relative_to(artifacts)):
        path.write_text("")
    done = built.command("why", str(model.relative_to(built.folder)))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "missing or damaged, so what data/" + data.stem + " was made from is not known"
    )
    assert "Traceback" not in done.stderr
    (artifacts / "claims/smoke-0000000000000000.json").write_text("")
    (artifacts / ".checkout").write_bytes(b"\xff\xfe")
    (built.folder / "results/smoke/figures/A7.png").unlink()
    built.snakemake("results/smoke/figures/A7.png")
    assert built.command("why", str(model.relative_to(built.folder))).returncode == 0
