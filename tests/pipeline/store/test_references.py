"""References: the same file by every path, and files that are not references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robustfeatures.errors import UserError
from robustfeatures.files import write_json
from robustfeatures.pipeline.plan.identity import identity_digest
from robustfeatures.pipeline.report.building import build_view
from robustfeatures.pipeline.run import job as jobs
from robustfeatures.pipeline.run.blocks import Blocks, Share
from robustfeatures.pipeline.store.references import (
    Artifacts,
    parts_are_kept,
    read_reference,
    sum_computing,
    update_reference,
    write_batch,
    write_part,
)
from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.show import show
from robustfeatures.tools.why import why
from tests.stores import publish_files

NONE = r"^{}: there is no such reference$"


@pytest.mark.parametrize(
    ("inside", "called"),
    [
        ("", "results/artifacts/model/a-1.json"),
        ("results/artifacts", "model/a-1.json"),
        ("results/artifacts/model", "a-1.json"),
        ("results/artifacts/table", "../model/a-1.json"),
    ],
)
def test_a_reference_is_the_same_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str, called: str
) -> None:
    (tmp_path / inside).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / inside)
    artifacts, artifact = Artifacts.of(Path(called))
    assert artifact == "model/a-1"
    assert artifacts.root.parent.absolute() == tmp_path / "results"
    assert artifacts.reference(artifact).absolute() == tmp_path / "results/artifacts/model/a-1.json"


@pytest.mark.parametrize("name", ["README.md", "nothing", ".", "/", "/x.json"])
def test_what_is_no_reference_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("read me")
    environment = jobs.Environment(Store(tmp_path / "store"), tmp_path, "cpu", 1)
    with pytest.raises(UserError, match=NONE.format(name)):
        list(why(Path(name)))
    with pytest.raises(UserError, match=NONE.format(name)):
        jobs.build(Path(name), environment)
    with pytest.raises(UserError, match=NONE.format(name)):
        build_view(Path(name), store=environment.store)


@pytest.mark.parametrize("damage", ["", "{", "{}", "[]"])
def test_a_damaged_reference_is_written_again_by_a_plan(tmp_path: Path, damage: str) -> None:
    """As after a power failure, which may leave an empty file."""
    artifacts, store = Artifacts(tmp_path / "artifacts"), Store(tmp_path / "store")
    identity = {"stage": "data"}
    record = {"label": "digits", "stage": "data", "digest": "0" * 16, "identity": identity, "inputs": {}}
    publish_files(store, identity_digest(identity, {}), {"rows.csv": b"a"})
    name = f"data/digits-{'0' * 16}"
    path = artifacts.reference(name)
    update_reference(artifacts, name, record, store)
    whole = path.read_bytes()
    path.write_text(damage)
    with pytest.raises(UserError, match=rf"^{path}: .* remove a damaged one, and the next run makes it again"):
        read_reference(path)
    update_reference(artifacts, name, record, store)
    assert path.read_bytes() == whole
    # Without its payload, the job runs again.
    path.write_text(damage)
    store.remove(identity_digest(identity, {}))
    update_reference(artifacts, name, record, store)
    assert not path.exists()


def test_the_file_of_a_batch_names_its_artifacts(tmp_path: Path) -> None:
    path = tmp_path / "model" / "digits-standard-2-seeds-0000000000000000.json"
    write_batch(path, ["model/digits-standard-seed0-1", "model/digits-standard-seed1-2"])
    told = r"json: stands for model/digits-standard-seed0-1 and model/digits-standard-seed1-2; give one of these$"
    with pytest.raises(UserError, match=told):
        read_reference(path)


def test_a_bare_name_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^a-1\.json: there is no such reference$"):
        list(why(Path("a-1.json")))
    with pytest.raises(UserError, match=r"a-1\.json: no study that was unfolded here plans this artifact$"):
        jobs.build(Path("a-1.json"), jobs.Environment(Store(tmp_path), tmp_path, "cpu", 1))
    with pytest.raises(UserError, match=r"^a-1\.json: no study that was unfolded here plans this view$"):
        build_view(Path("a-1.json"), store=Store(tmp_path))


def test_a_result_is_no_view(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path / "artifacts")
    write_json(artifacts.plan("data/digits-1"), {"stage": "data", "label": "digits", "code_entries": []})
    with pytest.raises(
        UserError, match=r"digits-1\.json: no table, figure, claims file or page; `robustfeatures build`"
    ):
        build_view(artifacts.reference("data/digits-1"), store=Store(tmp_path))


@pytest.mark.parametrize(
    ("kept", "keys", "expected"),
    [
        ({"key": []}, ["key"], True),
        ({"key": ["0"]}, ["key"], False),
        # The payload was in the store then, and was lost later.
        ({}, ["key"], False),
        # The inputs have other content now.
        ({"older": []}, ["key"], False),
        ({"key": []}, [None], False),
        ({"key": []}, ["key", "other"], False),
    ],
)
def test_a_finished_part_counts_for_the_payloads_that_are_needed_now(
    tmp_path: Path, kept: dict[str, list[str]], keys: list[str | None], expected: bool
) -> None:
    write_part(tmp_path / "part.json", kept)
    assert parts_are_kept(tmp_path / "part.json", Store(tmp_path / "store"), keys) == expected


@pytest.mark.parametrize("removed", ["0", "0.json"])
def test_a_part_is_made_again_without_one_of_its_blocks_or_its_note(tmp_path: Path, removed: str) -> None:
    """Some disks remove files that nobody has read for long; nobody reads a block until all are joined."""
    store, part = Store(tmp_path / "store"), tmp_path / "part.json"
    Blocks(store, "key", Share(1, 1)).finish(["0"], lambda name, path: path.touch())
    write_part(part, {"key": ["0"]})
    assert parts_are_kept(part, store, ["key"])
    store.block("key", removed).unlink()
    assert not parts_are_kept(part, store, ["key"])


def test_other_json_with_files_is_no_view(tmp_path: Path) -> None:
    """A payload's manifest lists files too."""
    path = tmp_path / "model" / "manifest.json"
    write_json(path, {"files": {"rows.csv": {"size": 1}}})
    for tell in (why, lambda path: show(path, Store(tmp_path))):
        with pytest.raises(UserError, match=r"manifest\.json: not a reference of an artifact, or a damaged one"):
            list(tell(path))


def test_computing_is_summed_by_stage_and_payload() -> None:
    def reference(stage: str, key: str, seconds: float, **built: str) -> dict[str, Any]:
        return {"stage": stage, "key": key, "built": {"computing_seconds": seconds, **built}}

    probed, network, alone = (
        reference("model", "a", 7.0),
        reference("model", "b", 5.0, copied_from="a"),
        reference("model", "c", 2.0, copied_from="elsewhere"),
    )
    others = [reference("data", "d", 0.0), reference("evaluation", "e", 1.5), reference("evaluation", "e", 1.5)]
    assert sum_computing([network, probed, alone, *others]) == {"model": 9.0, "evaluation": 1.5}
    assert sum_computing([network]) == {"model": 5.0}
