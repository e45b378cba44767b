"""Derived sets and evaluations made in parts by separate jobs: the same bits, and only what failed is made again."""

from __future__ import annotations

import json
import re

from robustfeatures.store.store import Store
from tests.conftest import Workspace, stamp

TABLE = "results/smoke/tables/A7.csv"


def contents(workspace: Workspace) -> dict[str, str]:
    """The content of every derived set and evaluation by reference."""
    found = {}
    for stage in ("derived", "evaluation"):
        for path in (workspace.folder / "results/artifacts" / stage).glob("*.json"):
            found[path.name] = json.loads(path.read_text())["content"]
    return found


def jobs(output: str) -> dict[str, int]:
    """How many jobs of each rule Snakemake says it runs."""
    return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", output, flags=re.MULTILINE)}


def leave_blocks_of_another_device(workspace: Workspace, smoke: Workspace) -> None:
    """As after a job on a GPU that was killed: blocks cut in another way, which no job on a processor may take."""
    for path in (smoke.folder / "results/artifacts").glob("*/*.json"):
        reference = json.loads(path.read_text())
        if reference["stage"] in ("derived", "evaluation"):
            for name in ("cuda-0", "cuda-train-0"):
                block = Store(workspace.store).block(reference["key"], name)
                block.parent.mkdir(parents=True, exist_ok=True)
                block.write_bytes(b"of other rows")
                block.with_name(f"{name}.json").write_text("{}")


def test_three_parts_and_two_give_what_one_gives(workspace: Workspace, smoke: Workspace) -> None:
    workspace.edit("config.yaml", "derived_parts: 1", "derived_parts: 3")
    workspace.edit("config.yaml", "evaluation_parts: 1", "evaluation_parts: 2")
    whole = contents(smoke)
    leave_blocks_of_another_device(workspace, smoke)
    done = workspace.snakemake(TABLE)
    found = contents(workspace)
    assert found
    assert found == {name: whole[name] for name in found}
    assert (workspace.folder / TABLE).read_bytes() == (smoke.folder / TABLE).read_bytes()
    planned = jobs(done.stderr)
    assert planned["derived_part"] == 3 * planned["derived"]
    assert planned["evaluation_part"] == 2 * planned["evaluation"]
    again = workspace.snakemake(TABLE)
    assert "Nothing to be done" in again.stderr


def test_another_number_of_parts_or_seeds_is_no_reason_to_run(built: Workspace) -> None:
    for old, new in (("derived_parts: 1", "derived_parts: 3"), ("seeds_per_job: 8", "seeds_per_job: 1")):
        built.edit("config.yaml", old, new)
        assert "Nothing to be done" in built.snakemake().stderr


def test_a_part_that_failed_is_made_alone(workspace: Workspace) -> None:
    """A block is lost, and nothing else is made again; nor is it when the number of parts changes."""
    workspace.edit("config.yaml", "derived_parts: 1", "derived_parts: 3")
    workspace.snakemake("-n")
    (plan,) = (workspace.folder / "results/artifacts/.plan/derived").glob("digits-D_rand-seed0-*.json")
    parts = [f"results/artifacts/.parts/derived/{plan.stem}/{part}-of-3.json" for part in (1, 2, 3)]
    workspace.snakemake(*parts)
    blocks = {path.stem: path.with_suffix("") for path in workspace.store.glob(".partial/*/blocks/*.json")}
    assert set(blocks) == {"cpu-train-0", "cpu-train-1", "cpu-train-2"}
    before = {name: stamp(path) for name, path in blocks.items()}
    blocks["cpu-train-1"].with_suffix(".json").unlink()
    done = workspace.snakemake(*parts)
    assert jobs(done.stderr)["derived_part"] == 1
    assert {name for name, path in blocks.items() if stamp(path) != before[name]} == {"cpu-train-1"}
    # Other jobs than those that made the blocks put them together: each is the same file still, not a copy.
    inodes = {path.stat().st_ino for path in blocks.values()}
    workspace.edit("config.yaml", "derived_parts: 3", "derived_parts: 1")
    reference = f"results/artifacts/derived/{plan.name}"
    workspace.snakemake(reference)
    made = json.loads((workspace.folder / reference).read_text())
    shards = (workspace.store / made["key"] / "data.zarr/train/images/c").glob("*/0/0/0")
    assert {path.stat().st_ino for path in shards} == inodes
