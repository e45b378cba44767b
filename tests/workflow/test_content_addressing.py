"""The payloads that a change makes again."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import shutil
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from robustfeatures.pipeline.store.content import content_digest
from robustfeatures.pipeline.store.store import Store
from tests.conftest import Stamp, Workspace, hurried, stamp
from tests.stores import publish_again

PATHWAY_2 = "learning_rate: 0.01"
D_RAND = "D_rand: {source: standard, training: downstream"
A2 = "results/smoke/tables/A2.csv"
D_RAND_CHANGED = "D_rand: {source: standard, training: pathway-1"


def stages_built(workspace: Workspace, before: dict[str, Stamp]) -> Counter[str]:
    """How many payloads of each stage were built since `before`."""
    fresh = {key for key, found in workspace.payloads().items() if before.get(key) != found}
    stages: Counter[str] = Counter()
    for name in ("data.zarr", "model.safetensors", "rows.csv"):
        stages[name] = sum((workspace.store / key / name).exists() for key in fresh)
    assert sum(stages.values()) == len(fresh)
    return +stages


def stamps(workspace: Workspace) -> dict[str, Stamp]:
    """Each table, figure, claims file and page, with what differs once it is written anew."""
    results = workspace.folder / "results" / "smoke"
    return {str(path.relative_to(results)): stamp(path) for path in results.rglob("*") if path.is_file()}


def rewritten(workspace: Workspace, before: dict[str, Stamp]) -> set[str]:
    return {name for name, found in stamps(workspace).items() if before.get(name) != found}


def test_a_second_run_does_nothing_at_once(built: Workspace) -> None:
    payloads, views = built.payloads(), stamps(built)
    for _ in range(3):
        began = time.monotonic()
        with hurried():
            done = built.snakemake()
        seconds = time.monotonic() - began
        assert "Nothing to be done" in done.stdout + done.stderr
        assert built.payloads() == payloads
        assert not rewritten(built, views)
        if seconds < 5:
            break
    else:
        pytest.fail(f"the third run, too, took {seconds:.1f} s")


def test_the_order_of_sets_is_no_reason_to_run(built: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        done = built.snakemake("-n")
        assert "Nothing to be done" in done.stdout + done.stderr


def files_of(experiment: str) -> set[str]:
    """What shows an experiment: its table, its figure, the claims and the page."""
    table, figure = (f"{kind}s/{experiment}" for kind in ("table", "figure"))
    return {
        *(f"{table}.{suffix}" for suffix in ("csv", "md", "tex")),
        *(f"{figure}.{suffix}" for suffix in ("png", "pdf", "txt")),
        *("claims.csv", "report/index.html"),
    }


def test_a_single_figure_builds_what_it_needs(built: Workspace) -> None:
    payloads, views = built.payloads(), stamps(built)
    before = (built.folder / A2).read_text()
    # Both the pathway that B1 shows and a training that only A2 shows.
    built.edit("workflow/studies/smoke.yaml", PATHWAY_2, "learning_rate: 0.02")
    built.edit("workflow/studies/smoke.yaml", D_RAND, D_RAND_CHANGED)
    built.snakemake("results/smoke/figures/B1.png")
    # One seed, one pathway: one model and its evaluation.
    assert stages_built(built, payloads) == {"model.safetensors": 1, "rows.csv": 1}
    # Its table is made with it. The claims and the page, which need the rest, say that they are outdated.
    assert rewritten(built, views) == files_of("B1")
    page, claims = (built.folder / "results/smoke" / name for name in ("report/index.html", "claims.csv"))
    assert re.findall(r'class="notice" data-experiment="(\w+)"', page.read_text()) == ["B1"]
    outdated = pd.read_csv(claims).set_index("experiment")["outdated"]
    assert outdated["B1"].str.startswith("B1 was made again").all()
    assert outdated.drop("B1").isna().all()
    # The rest follows when it is asked for: one more model, its evaluation, and what shows them.
    views = stamps(built)
    built.snakemake()
    assert stages_built(built, payloads) == {"model.safetensors": 2, "rows.csv": 2}
    assert rewritten(built, views) == files_of("A2")
    after = (built.folder / A2).read_text()
    assert {line.split(",")[0] for line in {*after.splitlines()} ^ {*before.splitlines()}} == {"D_rand"}
    assert 'class="notice" data' not in page.read_text()
    assert "outdated" not in pd.read_csv(claims).columns


@pytest.mark.slow
def test_a_single_figure_that_shows_another_plan(built: Workspace) -> None:
    """A change is made and undone. The figure is drawn again, even where Snakemake's record of it is gone."""
    figure = "results/smoke/figures/B1.png"
    before = (built.folder / figure).read_bytes()
    built.edit("workflow/studies/smoke.yaml", PATHWAY_2, "learning_rate: 0.02")
    built.snakemake(figure)
    assert (built.folder / figure).read_bytes() != before
    shutil.rmtree(built.folder / ".snakemake")
    built.edit("workflow/studies/smoke.yaml", "learning_rate: 0.02", PATHWAY_2)
    built.snakemake(figure)
    assert (built.folder / figure).read_bytes() == before


def test_a_dry_run_leaves_the_references_of_a_job_that_draws_a_figure(built: Workspace) -> None:
    """The job has written the reference of its table, and not yet its figure."""
    (table,) = (built.folder / "results/artifacts/table").glob("smoke-A7-*.json")
    (figure,) = (built.folder / "results/artifacts/figure").glob("smoke-A7-*.json")
    for path in (figure, *(built.folder / "results/smoke/figures").glob("A7.*")):
        path.unlink()
    done = built.snakemake("-n")
    assert table.exists()
    assert "experiment_smoke-A7" in done.stdout + done.stderr


def test_comments_docstrings_and_times_rebuild_nothing(built: Workspace) -> None:
    """The times are as after a copy that loses them, or with clocks that disagree."""
    payloads, chance = built.payloads(), random.Random(0)  # noqa: S311
    for path in sorted((built.folder / "src").rglob("*.py")):
        text = path.read_text()
        path.write_text(re.sub(r'^"""', '"""Reworded. ', text, count=1) + "\n\n# A comment.\n")
    for path in sorted((built.folder / "results").rglob("*.*")):
        if path.is_file() and "store" not in path.parts:
            moment = time.time() - chance.uniform(0, 1000)
            os.utime(path, (moment, moment))
    files = {name: inode for name, (inode, _) in stamps(built).items()}
    done = built.snakemake()
    assert "Nothing to be done" in done.stdout + done.stderr
    assert built.payloads() == payloads
    assert {name: inode for name, (inode, _) in stamps(built).items()} == files


def test_arithmetic_of_the_attack_loop_with_the_same_result(built: Workspace) -> None:
    """Clamping both bounds at once gives the same numbers: what attacks is made again, and nothing below it."""
    payloads = built.payloads()
    built.edit(
        "src/robustfeatures/attacks/gradient_ascent.py",
        "images.clamp_(*bounds)",
        "images.clamp_max_(bounds[1]).clamp_min_(bounds[0])",
    )
    built.build()
    # Eight derived sets; one adversarial training; ten evaluations, for they attack as well. The standard model and
    # the ten trained on derived sets do not depend on the attacks, and find their inputs unchanged.
    fresh = {key for key, found in built.payloads().items() if payloads.get(key) != found}
    assert stages_built(built, payloads) == {"data.zarr": 8, "model.safetensors": 1, "rows.csv": 10}
    trainings = [
        json.loads(path.read_text())
        for path in (built.folder / "results/artifacts/model").glob("*.json")
        if json.loads(path.read_text())["key"] in fresh
    ]
    assert {reference["label"] for reference in trainings} == {"digits-adversarial-seed0"}


@pytest.mark.slow
def test_an_accepted_refactoring_computes_nothing(built: Workspace) -> None:
    """A module that all attacks share gets one more function. No number changes."""
    payloads, views = built.payloads(), stamps(built)
    ascent = built.folder / "src/robustfeatures/attacks/gradient_ascent.py"
    ascent.write_text(ascent.read_text() + "\n\ndef _added() -> int:\n    return 1\n")
    jobs = r"^(data|model|derived|evaluation|measurement) +\d+$"
    done = built.snakemake("-n")
    assert re.search(jobs, done.stdout + done.stderr, flags=re.MULTILINE)
    built.environment = {"PATH": os.environ["PATH"]}
    accepted = built.command("accept", "--check", "1", "--reason", "one more function")
    assert accepted.returncode == 0, accepted.stderr
    # One for each pair of old and new code.
    pairs = re.search(r"for (\d+) pairs of old and new code", accepted.stdout)
    assert pairs is not None
    assert accepted.stdout.count("the same bytes: ") == int(pairs[1]) >= 3
    done = built.snakemake("-n")
    assert not re.search(jobs, done.stdout + done.stderr, flags=re.MULTILINE)
    built.snakemake(A2)
    assert built.payloads() == payloads
    # Tables and figures name the references anew.
    assert {"tables/A2.csv", "figures/A2.png"} <= rewritten(built, views)
    refused = built.command("accept", "--check", "none", "--reason", "x")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "--check: 'none' is neither all nor a number above 0" in refused.stderr


def test_without_references_nothing_is_computed_again(built: Workspace) -> None:
    payloads = built.payloads()
    table = (built.folder / A2).read_bytes()
    shutil.rmtree(built.folder / "results" / "artifacts")
    began = time.monotonic()
    done = built.snakemake(A2)
    assert time.monotonic() - began < 60
    # What the store has is found while the study is unfolded; on a cluster it would not cost a submission.
    stages = r"^(data|model|derived|evaluation|measurement) +\d+$"
    assert not re.search(stages, done.stdout + done.stderr, flags=re.MULTILINE)
    assert built.payloads() == payloads
    assert (built.folder / A2).read_bytes() == table
    references = list((built.folder / "results/artifacts").glob("*/*.json"))
    # One data set, twelve models, eight derived sets, eleven evaluations, one measurement.
    assert len(references) == 1 + 12 + 8 + 11 + 1


def test_a_payload_that_is_gone_is_made_again_when_it_is_needed(built: Workspace) -> None:
    """A reference whose payload is gone is dropped; deleting what shows it makes both again, with the same content."""
    (reference,) = (built.folder / "results/artifacts/evaluation").glob("digits-standard-test-seed0-*.json")
    facts = json.loads(reference.read_text())
    payload = built.store / facts["key"]
    for path in [payload, *payload.rglob("*")]:
        path.chmod(0o755)
    shutil.rmtree(payload)
    (built.folder / A2).unlink()
    payloads = built.payloads()
    built.snakemake(A2)
    assert stages_built(built, payloads) == {"rows.csv": 1}
    assert json.loads(reference.read_text())["content"] == facts["content"]


def test_a_killed_run_is_completed_by_the_next_one_with_an_edited_rule(built: Workspace) -> None:
    """Snakemake marks what it was making when it was killed, and makes it again: for us, finds it in the store.

    What else is missing must be made in the same run. The edited rule computes nothing again.
    """
    payloads = built.payloads()
    (derived,) = (built.folder / "results/artifacts/derived").glob("digits-D_rand-seed0-*.json")
    marker = base64.b64encode(str(derived.relative_to(built.folder)).encode()).decode()
    incomplete = built.folder / ".snakemake" / "incomplete"
    incomplete.mkdir(exist_ok=True)
    (incomplete / marker).touch()
    built.edit("workflow/rules/common.smk", "; {python} -m robustfeatures", "; {python}  -m robustfeatures")
    (built.folder / A2).unlink()
    built.snakemake(A2)
    assert (built.folder / A2).exists()
    assert built.payloads() == payloads


@pytest.mark.slow
def test_a_result_made_again_with_other_bits_reaches_every_view(built: Workspace) -> None:
    """It was lost from the store, and another machine made it again there: no job of this checkout ran."""
    (reference,) = (built.folder / "results/artifacts/evaluation").glob("digits-standard-test-seed0-*.json")

    def halve(folder: Path) -> str:
        rows = pd.read_csv(folder / "rows.csv")
        (folder / "rows.csv").unlink()
        rows.assign(correct=rows["correct"] // 2).to_csv(folder / "rows.csv", index=False)
        return content_digest(folder / "rows.csv")

    publish_again(Store(built.store), json.loads(reference.read_text())["key"], halve)
    payloads, before = built.payloads(), stamps(built)
    built.snakemake()
    assert built.payloads() == payloads
    assert {"tables/A1.csv", "figures/A1.png", "claims.csv", "report/index.html"} <= rewritten(built, before)
    assert "tables/B1.csv" not in rewritten(built, before)
    done = built.snakemake()
    assert "Nothing to be done" in done.stdout + done.stderr


def test_a_training_may_be_renamed(built: Workspace) -> None:
    """Names are for people: the recipes are the same, so nothing is computed, even where a payload is gone."""
    payloads = built.payloads()
    study = built.folder / "workflow/studies/smoke.yaml"
    study.write_text(re.sub(r"\bdownstream\b", "renamed", study.read_text()))
    (reference,) = (built.folder / "results/artifacts/evaluation").glob("digits-on-D_rand-downstream-test-seed0-*.json")
    (built.folder / "results/artifacts/.plan/evaluation" / reference.name.replace("downstream", "renamed")).write_text(
        json.dumps({"left": "by another naming"})
    )
    built.snakemake(A2)
    assert built.payloads() == payloads
    assert list((built.folder / "results/artifacts/model").glob("digits-on-D_rand-renamed-seed0-*.json"))


def test_two_workspaces_share_a_store(built: Workspace, tmp_path: Path) -> None:
    """A store that has everything makes the table of a fresh checkout without computing."""
    other = tmp_path / "other"
    shutil.copytree(built.folder, other, ignore=shutil.ignore_patterns("results", ".snakemake"))
    fresh = Workspace(other)
    fresh.edit("config.yaml", "store: results/store", f"store: {built.store}")
    payloads = built.payloads()
    table = "results/smoke/tables/A1.csv"
    fresh.snakemake(table)
    assert built.payloads() == payloads
    assert not (other / "results" / "store").exists()
    assert (other / table).read_bytes() == (built.folder / table).read_bytes()
