"""Another workflow that uses this one through Snakemake's `module:`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from robustfeatures.pipeline.store.remote import Remote
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.store.transfers import push
from tests.conftest import REPOSITORY, Workspace

SNAKEFILE = """
rule mine:
    input:
        "robust/results/smoke/tables/A1.csv",
    output:
        "mine.txt",
    shell:
        "wc -l < {{input}} > {{output}}; echo ${{{{ROBUSTFEATURES_STORE-none}}}} >> {{output}}"


module robust:
    snakefile:
        "{repository}/Snakefile"
    config:
        {config}
    prefix:
        "robust"


use rule * from robust as robust_*
"""


@pytest.mark.slow
def test_another_workflow_uses_a_table(smoke: Workspace, tmp_path: Path) -> None:
    """It has a config and a prefix of its own. Its own rules show no trace of ours. One evaluation is computed."""
    remote, folder = tmp_path / "remote", tmp_path / "other"
    store = Store(smoke.store)
    push(store, Remote.open(str(remote)), store.payload_keys())
    (reference,) = (smoke.folder / "results/artifacts/evaluation").glob("digits-standard-test-seed0-*.json")
    shutil.rmtree(remote / json.loads(reference.read_text())["key"])
    folder.mkdir()
    config = {"study": "smoke", "device": "cpu", "remote": str(remote)}
    (folder / "Snakefile").write_text(SNAKEFILE.format(repository=REPOSITORY, config=repr(config)))
    # What lies beside the other workflow is not ours.
    (folder / "config.yaml").write_text("samples: [a, b]\n")
    other = Workspace(folder)
    other.snakemake()
    table = (smoke.folder / "results/smoke/tables/A1.csv").read_bytes()
    assert (folder / "robust/results/smoke/tables/A1.csv").read_bytes() == table
    assert (folder / "mine.txt").read_text().split() == [str(table.count(b"\n")), "none"]
    assert sorted(path.name for path in folder.iterdir() if path.name[0] != ".") == [
        "Snakefile",
        "config.yaml",
        "mine.txt",
        "robust",
    ]
    made = json.loads((folder / "robust/results/artifacts/evaluation" / reference.name).read_text())
    assert made["content"] == json.loads(reference.read_text())["content"]
    assert (folder / "robust/results/store" / made["key"] / "manifest.json").exists()
    assert "Nothing to be done" in (again := other.snakemake()).stdout + again.stderr
    # Every table, figure and page can be asked for.
    listed = other.snakemake("--list-rules").stdout.split()
    assert {"robust_all", "robust_model", "robust_experiment_smoke-A1"} <= {*listed}
