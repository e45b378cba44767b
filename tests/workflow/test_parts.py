"""Derived sets and evaluations made in parts by separate jobs: the same bits, and only what failed is made again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.store.store import Store
from tests.conftest import Workspace, stamp

ARTIFACTS = ("derived/digits-D_det-seed0", "evaluation/digits-standard-test-seed0")


@pytest.fixture
def lacking(built: Workspace) -> dict[Path, dict[str, str]]:
    """The references of a derived set and of an evaluation that the built study has lost, with what they said."""
    found = {}
    for artifact in ARTIFACTS:
        (reference,) = (built.folder / "results/artifacts").glob(f"{artifact}-*.json")
        found[reference] = json.loads(reference.read_text())
        Store(built.store).remove(found[reference]["key"])
        reference.unlink()
    return found


def jobs(output: str) -> dict[str, int]:
    """How many jobs of each rule Snakemake says it runs."""
    return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", output, flags=re.MULTILINE)}


def leave_blocks_of_another_device(store: Store, key: str) -> None:
    """Blocks of a killed job on a GPU. They are cut in another way, so no job on a processor may take them."""
    for name in ("cuda-0", "cuda-train-0"):
        block = store.block(key, name)
        block.parent.mkdir(parents=True, exist_ok=True)
        block.write_bytes(b"of other rows")
        block.with_name(f"{name}.json").write_text("{}")


@pytest.mark.slow
def test_parts_give_what_one_job_gives(built: Workspace, lacking: dict[Path, dict[str, str]]) -> None:
    built.edit("config.yaml", "derived_parts: 1", "derived_parts: 3")
    built.edit("config.yaml", "evaluation_parts: 1", "evaluation_parts: 2")
    for facts in lacking.values():
        leave_blocks_of_another_device(Store(built.store), facts["key"])
    done = built.snakemake(*(str(path.relative_to(built.folder)) for path in lacking))
    planned = jobs(done.stderr)
    assert {name: planned[name] for name in planned if name != "total"} == {
        "derived": 1,
        "derived_part": 3,
        "evaluation": 1,
        "evaluation_part": 2,
    }
    for reference, facts in lacking.items():
        assert json.loads(reference.read_text())["content"] == facts["content"]
    # Nothing that builds on them is made again, because the content of the inputs is the same.
    assert "Nothing to be done" in built.snakemake().stderr
    # The parts are not made again either if their inputs are.
    (data,) = (built.folder / "results/artifacts/data").glob("*.json")
    Store(built.store).remove(json.loads(data.read_text())["key"])
    built.snakemake(str(data.relative_to(built.folder)))
    assert "Nothing to be done" in built.snakemake().stderr


# Runs in every Python of the workflow: it writes down which plan a job reads, and makes another plan before that.
SITE = """
import os, subprocess, sys
if "build" in sys.orig_argv:
    subprocess.run([sys.executable, "-m", "snakemake", "-n", "--config", "evaluation_parts=3"], check=True,
                   env={**os.environ, "PYTHONPATH": ""}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""


@pytest.mark.slow
def test_a_dry_run_beside_a_run_does_not_change_its_jobs(
    built: Workspace, lacking: dict[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = next(path for path in lacking if path.parent.name == "evaluation")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    done = built.snakemake(str(evaluation.relative_to(built.folder)))
    assert jobs(done.stderr)["evaluation"] == 1
    plans = [json.loads(path.read_text()) for path in Artifacts(built.folder / "results/artifacts").newest_tasks()]
    name = f"evaluation/{evaluation.stem}"
    # A job of three parts would have asked for their blocks.
    assert [plan["tasks"][name]["parts"] for plan in plans[:2]] == [3, 1]
    assert json.loads(evaluation.read_text())["content"] == lacking[evaluation]["content"]


@pytest.mark.slow
def test_a_part_that_failed_is_made_alone(built: Workspace, lacking: dict[Path, dict[str, str]]) -> None:
    """A block is lost, and nothing else is made again; nor is it when the number of parts changes."""
    built.edit("config.yaml", "derived_parts: 1", "derived_parts: 3")
    reference = next(iter(lacking))
    parts = [f"results/artifacts/.parts/derived/{reference.stem}/{part}-of-3.json" for part in (1, 2, 3)]
    built.snakemake(*parts)
    blocks = {path.stem: path.with_suffix("") for path in built.store.glob(".partial/*/blocks/*.json")}
    assert set(blocks) == {"cpu-train-0", "cpu-train-1", "cpu-train-2", "cpu-validation-0"}
    before = {name: stamp(path) for name, path in blocks.items()}
    blocks["cpu-train-1"].with_suffix(".json").unlink()
    done = built.snakemake(*parts)
    assert jobs(done.stderr)["derived_part"] == 1
    assert {name for name, path in blocks.items() if stamp(path) != before[name]} == {"cpu-train-1"}
    # Another job than those that made the blocks puts them together: each is the same file still, not a copy.
    inodes = {path.stat().st_ino for path in blocks.values()}
    built.edit("config.yaml", "derived_parts: 3", "derived_parts: 1")
    built.snakemake(str(reference.relative_to(built.folder)))
    made = json.loads(reference.read_text())
    assert made["content"] == lacking[reference]["content"]
    shards = (built.store / made["key"] / "data.zarr").glob("*/images/c/*/0/0/0")
    assert {path.stat().st_ino for path in shards} == inodes


@pytest.mark.slow
def test_another_number_of_parts_or_seeds_is_no_reason_to_run(built: Workspace) -> None:
    study = built.folder / "workflow/studies/smoke.yaml"
    kept, experiments, _ = study.read_text().replace("seeds: [0]", "seeds: [0, 1]").partition("experiments:\n")
    study.write_text(f"{kept}{experiments}  A7: {{}}\n")
    built.build()
    built.snakemake()
    for old, new in (("derived_parts: 1", "derived_parts: 3"), ("seeds_per_job: 8", "seeds_per_job: 1")):
        built.edit("config.yaml", old, new)
        assert "Nothing to be done" in built.snakemake().stderr
