"""The last lines of a run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from robustfeatures.pipeline.plan.tasks import make_tasks
from robustfeatures.pipeline.study.config import Config
from robustfeatures.tools.ending import describe_failures, describe_success
from tests.tools.made import Made

ERROR = "{} ERROR data/digits: data.sha256: wrong"
BUG = "{} ERROR unexpected error\nTraceback (most recent call last):\n  File x\nValueError: bug"


def stamped(moment: float) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(moment))},000"


def test_a_finished_run_names_the_page_and_counts_verdicts(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.make_views("table")
    assert len(list(describe_success(made.plan, made.artifacts, "2020", 10.0, 2))) == 1
    for recipe in made.plan.recipes.values():
        made.make(recipe)
    made.make_views("claims", "report")
    computed, claims, page = describe_success(made.plan, made.artifacts, "2020", 10.0, 2)
    assert computed.startswith(f"{len(made.plan.recipes)} payloads computed, 0 found, in 10 s on 2 cores; ")
    assert claims == "claims: 1 held, 1 undecided; controls: 1 held"
    assert page == f"page: {tmp_path}/results/smoke/report/index.html"
    # As after a run for one figure, if the user had removed the claims.
    (tmp_path / "results/smoke/claims.csv").unlink()
    assert list(describe_success(made.plan, made.artifacts, "2020", 10.0, 2))[1:] == [page]
    found, *_ = describe_success(made.plan, made.artifacts, "2999", 10.0, 2)
    assert found.startswith(f"0 payloads computed, {len(made.plan.recipes)} found, ")


def test_a_payload_with_two_names_counts_once(tmp_path: Path) -> None:
    made = Made(tmp_path)
    twin = replace(made.plan.recipes[made.name("model/digits-standard-")], family="digits-twin")
    plan = replace(made.plan, recipes={**made.plan.recipes, twin.name: twin})
    for recipe in plan.recipes.values():
        made.make(recipe)
    (line,) = describe_success(plan, made.artifacts, "2020", 10.0, 2)
    assert line.startswith(f"{len(made.plan.recipes)} payloads computed, 0 found, ")
    (line,) = describe_success(plan, made.artifacts, "2999", 10.0, 2)
    assert line.startswith(f"0 payloads computed, {len(made.plan.recipes)} found, ")


def test_a_copy_took_no_computing_and_what_another_checkout_made_neither(tmp_path: Path) -> None:
    made = Made(tmp_path)
    network, other = (made.plan.recipes[made.name(f"model/digits-{name}-")] for name in ("standard", "adversarial"))
    made.make(network, computing=6.0)
    made.make(other, computing=4.0)
    (line,) = describe_success(made.plan, made.artifacts, "2020", 10.0, 2)
    assert "; 50 % of the core time inside training" in line
    made.artifacts.count_arrival(other.digest, "copied")
    (line,) = describe_success(made.plan, made.artifacts, "2020", 10.0, 2)
    copied = "1 copied from a training with probes"
    assert line.startswith(f"1 payload computed, {copied}, 0 found, in 10 s on 2 cores; 30 %")
    made.artifacts.count_arrival(network.digest, "taken")
    (line,) = describe_success(made.plan, made.artifacts, "2020", 10.0, 1)
    assert line.startswith(f"0 payloads computed, 1 taken from the remote, {copied}, 0 found, in 10 s on 1 core; 0 %")
    # A line that a machine left half-written says nothing.
    (made.artifacts.root / ".arrivals").write_text("2025-01-01T00:00:00+00:00 comp")
    (line,) = describe_success(made.plan, made.artifacts, "2020", 10.0, 2)
    assert line.startswith("0 payloads computed, 2 found, in 10 s on 2 cores; 0 %")


def test_on_gpus_the_share_is_that_of_the_jobs_that_use_them(tmp_path: Path) -> None:
    made = Made(tmp_path)
    network, other = (made.plan.recipes[made.name(f"model/digits-{name}-")] for name in ("standard", "adversarial"))
    made.make(other, computing=8.0)
    (line,) = describe_success(made.plan, made.artifacts, "2020", 10.0, 16, 3)
    assert line.startswith("1 payload computed, 0 found, in 10 s on 16 cores; 5 % of the core time inside training, ")
    made.make(network, computing=6.0, device="cuda: NVIDIA H200, cuDNN 91900")
    (line,) = describe_success(made.plan, made.artifacts, "2020", 10.0, 16, 3)
    assert line == (
        "2 payloads computed, 0 found, in 10 s with 3 places for jobs on GPUs; 20 % of their time inside training, "
        "attack or evaluation"
    )
    together = replace(network.parameters, training=replace(network.parameters.training, gpus_per_training=2))
    plan = replace(made.plan, recipes={**made.plan.recipes, network.name: replace(network, parameters=together)})
    (line,) = describe_success(plan, made.artifacts, "2020", 10.0, 16, 3)
    assert " 40 % of their time " in line


def test_failed_jobs_are_named_with_their_message(tmp_path: Path) -> None:
    made = Made(tmp_path)
    tasks = make_tasks(made.plan, Config(study="smoke", evaluation_parts=2), 0)
    now = time.time()
    (part,) = made.artifacts.parts(made.name("evaluation/digits-adversarial-test-"), 2)[:1]
    names = {
        "message": made.name("data/"),
        "bug": f"{made.name('evaluation/digits-adversarial-test-')}-{part.stem}",
        "of an earlier run": made.name("model/digits-standard-seed0"),
        "made in the next try": made.name("model/digits-adversarial-seed0"),
        "killed": made.name("derived/digits-D_rand-seed0"),
        "view": next(view.artifact for view in made.plan.views if view.kind == "table"),
    }
    texts = {
        "message": f"{stamped(now)} INFO begins\n" + ERROR.format(stamped(now)),
        "bug": BUG.format(stamped(now)),
        "of an earlier run": ERROR.format(stamped(now - 3600)),
        "made in the next try": ERROR.format(stamped(now)),
        "killed": f"{stamped(now)} INFO begins",
        "view": BUG.format(stamped(now)),
    }
    for kind, name in names.items():
        log = tmp_path / "results" / "logs" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"{texts[kind]}\n")
    made.make(made.plan.recipes[names["made in the next try"]])
    lines = list(describe_failures(made.plan, tasks, made.artifacts, now - 60))
    failed = dict(zip(lines[1::2], lines[::2], strict=True))
    logs = {kind: f"  log: {tmp_path}/results/logs/{name}.log" for kind, name in names.items()}
    assert failed == {
        logs["message"]: "failed: data/digits: data.sha256: wrong",
        logs["bug"]: "failed: ValueError: bug",
        logs["view"]: "failed: ValueError: bug",
    }
    assert os.path.lexists(made.artifacts.reference(names["made in the next try"]))


@pytest.mark.parametrize("logged", [False, True])
def test_a_bug_is_printed_once_and_logged_where_there_is_a_log(tmp_path: Path, logged: bool) -> None:
    log = tmp_path / "job.log"
    code = (
        "import sys; from pathlib import Path; from robustfeatures.cli import run\n"
        "def bug(**options):\n"
        "    if len(sys.argv) > 1:\n"
        "        run.log_to(Path(sys.argv[1]))\n"
        "    1 / 0\n"
        "run.app = bug; run.main()"
    )
    given = [str(log)] if logged else []
    done = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert (log.read_text().count("ERROR unexpected error\nTraceback") if log.exists() else 0) == logged
