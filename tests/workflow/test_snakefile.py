"""The Snakefile itself: what it imports, how long it takes, and what Snakemake's own checks say."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from robustfeatures.files import hash_file
from robustfeatures.pipeline.store.references import Artifacts
from tests.conftest import REPOSITORY, Workspace, hurried

RULES = sorted((REPOSITORY / "workflow" / "rules").glob("*.smk"))
STAGE_RULES = [path for path in RULES if path.stem != "common"]


STUDIES = sorted(path.stem for path in (REPOSITORY / "workflow" / "studies").glob("*.yaml"))


# The second is that of a processor which spends no more than this on two million rounds of an empty loop; one that is
# slower, or that other tests share, has as much longer.
SECONDS_OF_TWO_MILLION_ROUNDS = 0.06
# Forks for each study, so that the package is imported once and no study finds what another has imported or computed.
# Prints for each its name, its recipes, the seconds with those of the import, those of the loop, and heavy modules.
UNFOLD = """
import os, sys, time
began = time.process_time()
from pathlib import Path
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.plan.plan import unfold
imported = time.process_time() - began
for study in sys.argv[1:]:
    if os.fork() == 0:
        began = time.process_time()
        plan = unfold(Config(study=study), Path("workflow/studies"))
        heavy = {"torch", "zarr", "pandas", "matplotlib"} & set(sys.modules)
        unfolded = time.process_time()
        for each in range(2_000_000): pass
        rounds = time.process_time() - unfolded
        print(study, len(plan.recipes), imported + unfolded - began, rounds, *heavy, flush=True)
        os._exit(0)
    os.wait()
"""


def test_unfolding_is_quick_and_imports_no_torch() -> None:
    command = [sys.executable, "-c", UNFOLD, *STUDIES]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    found = {study: facts for study, *facts in map(str.split, done.stdout.splitlines())}
    assert list(found) == STUDIES, done.stderr
    for study, (recipes, seconds, rounds, *heavy) in found.items():
        assert heavy == [], study
        assert int(recipes) > 10, study
        assert float(seconds) < 1.5 * max(1.0, float(rounds) / SECONDS_OF_TWO_MILLION_ROUNDS), study


def test_parsing_the_snakefile_imports_neither_torch_nor_zarr(workspace: Workspace) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "snakemake", "-n", "--cores", "1"],
        cwd=workspace.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(re.findall(r"\|\s+([\w.]+)$", done.stderr, flags=re.MULTILINE))
    assert "robustfeatures.pipeline.plan.plan" in imported
    assert not imported & {"torch", "zarr"}


def test_a_dry_run_of_the_default_study_plans_every_stage(workspace: Workspace) -> None:
    began = time.monotonic()
    with hurried():
        done = workspace.snakemake("-n", "--config", "study=digits")
    assert time.monotonic() - began < 10
    for stage in ("data", "model", "derived", "evaluation", "experiment", "claims", "report"):
        assert re.search(rf"^{stage}(_digits.*)? +\d+$", done.stdout + done.stderr, flags=re.MULTILINE), stage
    assert not workspace.payloads()
    # A line for each job, and no list of its files.
    lines = done.stdout.splitlines()
    assert sum(re.match(r"Job \d+: model digits-", line) is not None for line in lines) == lines_of_models(done.stdout)
    assert len(done.stdout) < 12_000


def test_jobs_run_in_the_python_of_snakemake(workspace: Workspace) -> None:
    """Not in the first one on the PATH, which may be another if no environment is activated."""
    done = workspace.snakemake("-n", "-p")
    assert f"{shlex.quote(sys.executable)} -m robustfeatures build" in done.stdout + done.stderr


def lines_of_models(text: str) -> int:
    """How many models Snakemake's own statistics count."""
    found = re.search(r"^model +(\d+)$", text, flags=re.MULTILINE)
    assert found is not None
    return int(found[1])


def give_wrong_images(workspace: Workspace) -> None:
    """Images with values above 1, which the job that reads them refuses."""
    own = workspace.folder / "own.npz"
    np.savez(own, images=np.full((40, 1, 8, 8), 2.0, np.float32), labels=np.arange(40) % 4)
    given = f"source: npz\n  path: own.npz\n  sha256: {hash_file(own)}"
    workspace.edit("workflow/studies/smoke.yaml", "source: digits", given)
    workspace.edit("workflow/studies/smoke.yaml", "batch_size: 64", "batch_size: 8")


def test_a_failed_job_says_why_in_the_last_lines(workspace: Workspace) -> None:
    give_wrong_images(workspace)
    done = workspace.snakemake(check=False)
    assert done.returncode != 0
    message, log = done.stderr.splitlines()[-2:]
    assert message.startswith("failed: data/npz-")
    assert "images: values from 2.0 to 2.0; they must lie in 0 to 1" in message
    assert (workspace.folder / log.removeprefix("  log: ")).is_file()


@pytest.mark.slow
def test_the_expected_time_is_that_of_the_jobs_that_run(workspace: Workspace) -> None:
    """The study has a training of many hours. Its data cannot be read, so that no run gets there."""
    give_wrong_images(workspace)
    workspace.edit("workflow/studies/smoke.yaml", "steps: 2}", "steps: 2}\n    epochs: 10000000000")
    whole = workspace.snakemake(check=False)
    assert " jobs, expected to take " in whole.stdout + whole.stderr
    short = workspace.snakemake("--until", "data", check=False)
    assert "Job stats" in short.stdout + short.stderr
    assert "expected to take" not in short.stdout + short.stderr


def test_a_run_and_no_dry_run_counts_the_stopped_jobs_anew(workspace: Workspace) -> None:
    """A dry run beside a run must not make its later tries ask for more memory."""
    artifacts = Artifacts(workspace.folder / "results/artifacts")
    workspace.plan()
    task = next(name for name in json.loads(artifacts.newest_tasks()[0].read_text())["tasks"] if "model/" in name)
    # A job of a run beside this one counts its own.
    for name in (task, "model/of-another-study"):
        artifacts.count_stop(name)
    workspace.snakemake("-n")
    assert artifacts.stops(task) == 1
    workspace.snakemake("--until", "data")
    assert artifacts.stops(task) == 0
    assert artifacts.stops("model/of-another-study") == 1


def test_another_folder_takes_the_config_of_the_repository(workspace: Workspace, tmp_path: Path) -> None:
    done = workspace.snakemake("-n", "--directory", str(tmp_path / "elsewhere"))
    assert "study smoke" in done.stdout
    # Its own comes first.
    (tmp_path / "elsewhere" / "config.yaml").write_text("study: no-such-study\n")
    done = workspace.snakemake("-n", "--directory", str(tmp_path / "elsewhere"), check=False)
    assert "config.yaml: study: 'no-such-study' is unknown" in done.stdout + done.stderr
    done = workspace.snakemake("-n", "--config", "study=no-such-study", check=False)
    assert "--config: study: 'no-such-study' is unknown" in done.stdout + done.stderr


def test_lint(workspace: Workspace) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--lint"], cwd=workspace.folder, capture_output=True, text=True, check=False
    )
    assert "Congratulations" in done.stdout + done.stderr


def test_snakefmt() -> None:
    files = [str(REPOSITORY / "Snakefile"), *map(str, RULES)]
    command = [sys.executable, "-m", "snakefmt", "--check", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", STAGE_RULES, ids=lambda path: path.stem)
def test_every_rule_says_all_that_a_scheduler_asks(path: Path) -> None:
    _, *rules = re.split(r"^ *rule(?: \w+)?:$", path.read_text(), flags=re.MULTILINE)
    assert rules
    for rule in rules:
        assert rule.lstrip().startswith('"""'), rule
        for directive in ("log", "benchmark", "threads", "resources", "conda", "shell"):
            assert re.search(rf"^ +{directive}:", rule, flags=re.MULTILINE), (directive, rule)


def test_a_job_can_be_run_by_hand(workspace: Workspace) -> None:
    workspace.snakemake("-n")
    (plan,) = (workspace.folder / "results/artifacts/.plan/data").glob("*.json")
    reference = f"results/artifacts/data/{plan.name}"
    done = workspace.command("build", reference)
    assert done.returncode == 0, done.stderr
    assert (workspace.folder / reference).exists()
    unplanned = workspace.command("build", "results/artifacts/data/digits-0000000000000000.json")
    assert unplanned.returncode == 1
    assert unplanned.stderr.strip().splitlines()[-1].startswith("robustfeatures: results/artifacts/data/digits-0000")


def test_a_job_refuses_code_that_was_edited_after_the_plan(workspace: Workspace) -> None:
    workspace.snakemake("-n")
    (plan,) = (workspace.folder / "results/artifacts/.plan/data").glob("*.json")
    source = workspace.folder / "src/robustfeatures/data/digits.py"
    source.write_text(source.read_text() + "\n\ndef _added() -> int:\n    return 1\n")
    done = workspace.command("build", f"results/artifacts/data/{plan.name}")
    assert done.returncode == 1
    assert done.stderr.startswith("robustfeatures: data/digits: the code of this stage changed after the plan was made")
    assert not workspace.payloads()


def test_environments_pin_what_the_package_pins() -> None:
    import tomllib

    wanted = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    assert all("==" in requirement for requirement in wanted)
    for name in ("cpu", "gpu"):
        environment = yaml.safe_load((REPOSITORY / "envs" / f"{name}.yaml").read_text())
        assert environment["name"] == f"robustfeatures-{name}"
        assert environment["channels"] == ["conda-forge", "nodefaults"]
        *conda, pip = environment["dependencies"]
        compiler = ["cxx-compiler"] if name == "gpu" else []
        assert conda == ["python=3.11", "pip", *compiler]
        index, *pinned = pip["pip"]
        assert index.startswith("--extra-index-url https://download.pytorch.org/whl/")
        assert pinned == wanted
