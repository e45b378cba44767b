"""A study in a fresh clone that has nothing but a remote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.prepare import plan_run
from robustfeatures.pipeline.plan.tasks import announce_tasks
from robustfeatures.pipeline.run.job import Environment, build
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.store.remote import Remote
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.store.transfers import push
from robustfeatures.pipeline.study.config import Config
from tests.conftest import Workspace
from tests.in_process import build_payloads
from tests.tools.made import STUDIES


@pytest.fixture
def remote(smoke: Workspace, tmp_path: Path) -> Path:
    store = Store(smoke.store)
    assert push(store, Remote.open(str(tmp_path / "remote")), store.payload_keys()).refused == []
    return tmp_path / "remote"


def contents(workspace: Workspace) -> dict[str, str]:
    found = map(json.loads, (path.read_text() for path in (workspace.folder / "results/artifacts").glob("*/*.json")))
    return {one["digest"]: one["content"] for one in found if "content" in one}


def test_a_fresh_clone_computes_nothing(workspace: Workspace, smoke: Workspace, remote: Path) -> None:
    table = Path("results/smoke/tables/A2.csv")
    done = workspace.snakemake("--config", f"remote=file://{remote}", "--", str(table))
    count = len(list(smoke.store.glob("*/manifest.json")))
    said = f"0 payloads computed, {count} taken from the remote, 0 found, in "
    assert said in done.stdout + done.stderr
    assert contents(workspace) == contents(smoke)
    assert (workspace.folder / table).read_bytes() == (smoke.folder / table).read_bytes()
    again = workspace.snakemake("--config", f"remote=file://{remote}", "--", str(table))
    assert "Nothing to be done" in again.stdout + again.stderr


def test_an_input_that_the_remote_lacks_is_made_and_the_rest_taken(
    workspace: Workspace, smoke: Workspace, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remote's copy of one data set is damaged. Jobs make it, and take what planning could not know of."""
    (data,) = (smoke.folder / "results/artifacts/data").glob("*.json")
    key = json.loads(data.read_text())["key"]
    (remote / key / "manifest.json").unlink()
    (victim,) = (smoke.folder / "results/artifacts/model").glob("digits-standard-seed0-*.json")
    damaged = json.loads(victim.read_text())["key"]
    largest = max((remote / damaged).glob("?" * 64), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    monkeypatch.chdir(workspace.folder)
    build_payloads(Path(), Config(study="smoke", remote=str(remote), device="cpu"), Path("workflow/studies"))
    assert contents(workspace) == contents(smoke)
    came = Artifacts(workspace.folder / "results/artifacts").arrivals("2020")
    keys = {path.parent.name for path in smoke.store.glob("*/manifest.json")}
    assert came == dict.fromkeys(keys, "taken") | dict.fromkeys((key, damaged), "computed")


def test_a_dry_run_without_the_remote_takes_it_from_no_run(
    workspace: Workspace, smoke: Workspace, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remote lacks the data, so that only the jobs know what to take, and a dry run comes before them."""
    (data,) = (smoke.folder / "results/artifacts/data").glob("*.json")
    shutil.rmtree(remote / json.loads(data.read_text())["key"])
    monkeypatch.chdir(workspace.folder)
    artifacts, store = Artifacts(Path("results/artifacts")), Store(Path("results/store"))
    monkeypatch.setenv(artifacts.tasks_variable, "")
    for address in (str(remote), None):
        config = Config(study="smoke", remote=address, device="cpu")
        planned = plan_run(config, Path("workflow/studies"), artifacts, store, is_local=True, uses_conda=False)
        if address:
            announce_tasks(artifacts, planned.name)
    environment = Environment(store=store, raw=Path("raw"), device="cpu", threads=1)
    for stage in ("data", "model/digits-standard-seed0"):
        (name,) = (task.name for task in planned.tasks if task.name.startswith(stage))
        build(artifacts.reference(name), environment)
    assert sorted(artifacts.arrivals("2020").values()) == ["computed", "taken"]


def test_labels_and_studies(built: Workspace, tmp_path: Path) -> None:
    done = built.command("push", str(tmp_path / "some"), "--label", "digits-standard-seed0")
    assert done.returncode == 0, done.stderr
    # The network and its data.
    assert done.stdout == f"{tmp_path / 'some'}: pushed 2 payloads; there before: 0\n"
    done = built.command("push", str(tmp_path / "some"), "--study", "smoke")
    assert done.stdout.endswith("payloads; there before: 2\n")
    assert len(list((tmp_path / "some").glob("*/manifest.json"))) == len(built.payloads())
    done = built.command("push", str(tmp_path / "some"), "--label", "digits-standart")
    assert done.stderr == (
        "robustfeatures: --label: no artifact 'digits-standart' is built here (did you mean 'digits-standard'?)\n"
    )
    done = built.command("push")
    assert done.stderr == "robustfeatures: config.yaml: names no remote; give one\n"


def test_a_remote_that_is_not_there(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(UserError, match=rf"^{nowhere}: there is no remote here; `robustfeatures push` makes one$"):
        build_payloads(tmp_path, Config(study="smoke", remote=str(nowhere), device="cpu"), STUDIES)
    assert not list(tmp_path.rglob("manifest.json"))


def test_snakemake_shows_no_credentials(workspace: Workspace) -> None:
    done = workspace.snakemake("--config", "remote=s3://id:hunter2@bucket", check=False)
    assert done.returncode == 1
    said = "--config, or a configfile: remote: holds credentials; give them in ~/.aws/credentials or AWS_*"
    assert said in done.stderr
    assert "hunter2" not in done.stdout + done.stderr
    assert not list(workspace.store.glob("*/manifest.json"))
