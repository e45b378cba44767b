"""The results of the smoke study: provenance, tables, and the commands that inspect them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from robustfeatures import load_model, open_dataset
from robustfeatures.attacks import pgd
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.errors import UserError
from robustfeatures.pipeline.store.acceptances import write_acceptance
from tests.conftest import Workspace


def reference(workspace: Workspace, stage: str, label: str) -> Path:
    (found,) = (workspace.folder / "results" / "artifacts" / stage).glob(f"{label}-" + "[0-9a-f]" * 16 + ".json")
    return found


DERIVED = ("D_NR-images", "D_NR-noise", "D_R-images", "D_R-noise", "D_rand", "D_det", "D_rand-robust", "D_det-robust")


@pytest.mark.parametrize("name", DERIVED)
def test_derived_sets_come_from_the_training_split_alone(smoke: Workspace, name: str) -> None:
    data = reference(smoke, "data", "digits")
    splits = {split: open_dataset(data, split) for split in ("train", "validation", "test")}
    indices = {split: set(dataset.provenance["source_index"].tolist()) for split, dataset in splits.items()}
    assert sum(map(len, indices.values())) == len(set.union(*indices.values())) == 1797
    derived = open_dataset(reference(smoke, "derived", f"digits-{name}-seed0"))
    np.testing.assert_array_equal(derived.provenance["source_index"], splits["train"].provenance["source_index"])
    np.testing.assert_array_equal(derived.provenance["source_label"], splits["train"].labels)
    start = set(derived.provenance["start_index"].tolist())
    assert start - {-1} <= indices["train"]
    assert derived.images.dtype == np.float32
    assert derived.images.min() >= 0
    assert derived.images.max() <= 1
    originals = splits["train"].float_images()
    if "images" in name or "noise" in name:
        np.testing.assert_array_equal(derived.labels, splits["train"].labels)
        assert (start == {-1}) == ("noise" in name)
    else:
        np.testing.assert_array_equal(derived.labels, derived.provenance["target"])
        assert np.linalg.norm((derived.images - originals).reshape(len(originals), -1), axis=1).max() <= 0.9 + 1e-5
    if "det" in name:
        np.testing.assert_array_equal(derived.labels, (splits["train"].labels + 1) % 10)


def test_a_derived_set_is_what_the_attack_makes_of_the_original(smoke: Workspace) -> None:
    """The payload equals a second computation with the public functions."""
    original = open_dataset(reference(smoke, "data", "digits"))
    derived = open_dataset(reference(smoke, "derived", "digits-D_det-seed0"))
    model = load_model(reference(smoke, "model", "digits-standard-seed0"))
    settings = yaml.safe_load((smoke.folder / "workflow/studies/smoke.yaml").read_text())["derived"]["D_det"]["method"]
    images, labels = original.to_torch().tensors
    attack = partial(
        pgd,
        images=images,
        labels=(labels + 1) % 10,
        norm="l2",
        eps=settings["eps"],
        step_size=settings["step_size"],
        steps=settings["steps"],
        targeted=True,
    )
    np.testing.assert_allclose(derived.images, attack(FrozenNetwork(model)).numpy(), atol=1e-5)
    # Without the folded batch norm an image next to the kink of a ReLU goes another way after a rounding error.
    differences = np.abs(derived.images - attack(model).numpy()).max((1, 2, 3))
    assert (differences < 1e-5).mean() > 0.99
    assert differences.max() < 0.05


def test_evaluations_use_the_test_split(smoke: Workspace) -> None:
    """The clean row of A1 equals a second computation."""
    test = open_dataset(reference(smoke, "data", "digits"), "test")
    model = load_model(reference(smoke, "model", "digits-standard-seed0"))
    images, labels = test.to_torch().tensors
    with torch.no_grad():
        expected = 100 * (model(images).argmax(1) == labels).double().mean().item()
    table = pd.read_csv(smoke.folder / "results/smoke/tables/A1.csv")
    (found,) = table[(table["row"] == "standard") & (table["eps"] == 0)]["accuracy"]
    assert found == pytest.approx(expected, abs=0.006)


def test_tables_are_tidy(smoke: Workspace) -> None:
    tables = smoke.folder / "results" / "smoke" / "tables"
    a1 = pd.read_csv(tables / "A1.csv")
    quantity = ["accuracy", "accuracy_std", "accuracy_low", "accuracy_high"]
    assert list(a1.columns) == ["row", "eps", *quantity, "seeds", "published_accuracy", "difference_accuracy"]
    assert sorted(a1["eps"].unique()) == [0, 0.25, 0.5, 0.75]
    assert len(a1) == 6 * 4
    # Digits are not CIFAR-10, so nothing published stands beside them as if it were comparable.
    assert a1["published_accuracy"].isna().all()
    assert "70.9" in (tables / "A1.md").read_text()
    for row, rows in a1.groupby("row"):
        assert rows.sort_values("eps")["accuracy"].is_monotonic_decreasing, row
    assert list(pd.read_csv(tables / "A7.csv")["test_set"].unique()) == ["D", "relabelled D"]
    claims = pd.read_csv(smoke.folder / "results/smoke/claims.csv")
    assert list(claims.columns[:6]) == ["experiment", "claim", "setting", "control", "verdict", "value"]
    assert set(claims["experiment"]) == {"A1", "A2", "A7", "B1"}
    # One seed has no spread: evaluations are judged over their images, histories are not.
    untested = claims["verdict"] == "not tested"
    assert set(claims[~untested]["experiment"]) == {"A1", "A2", "A7", "B1"}
    # In so few epochs some networks learn nothing.
    unlearned = claims["quantity"].str.endswith("; not tested: in a seed a network has learned nothing")
    assert set(claims[untested & ~unlearned]["experiment"]) == {"B1"}
    assert set(claims[unlearned]["verdict"]) == {"not tested"}
    assert set(claims[~untested]["interval"]) == {"one network"}
    assert (claims[~untested]["low"] <= claims[~untested]["high"]).all()


def test_the_page_is_whole_and_names_the_files_beside_it(smoke: Workspace) -> None:
    results = smoke.folder / "results" / "smoke"
    text = (results / "report" / "index.html").read_text()
    # Five figures and ten digits are inside; nothing leads out but to papers.
    assert len(re.findall(r'src="data:image/png;base64,[^"]{100,}"', text)) == 5 + 10
    links = re.findall(r'(?:href|src)="(?!#|data:)([^"]+)"', text)
    assert links
    assert all(link.startswith(("https://arxiv.org/", "https://openreview.net/")) for link in links)
    named = set(re.findall(r"(?:tables|figures)/A?B?\d+\.\w+", text))
    assert {f"tables/A2.{kind}" for kind in ("csv", "md", "tex")} <= named
    assert [name for name in named if not (results / name).is_file()] == []
    assert "12 trained networks, 8 derived data sets, 11 evaluations under attack" in text
    assert (smoke.folder / "workflow/studies/smoke.yaml").read_text().splitlines()[-1].strip() in text


def test_figures_have_captions(smoke: Workspace) -> None:
    caption = (smoke.folder / "results" / "smoke" / "figures" / "A1.txt").read_text()
    for part in ("Study: smoke", "eps 0, 0.25, 0.5 and 0.75", "steps 5", "Seeds: 0.", "results/smoke/figures/A1.png"):
        assert part in caption


def test_show(smoke: Workspace) -> None:
    path = reference(smoke, "evaluation", "digits-adversarial-test-seed0")
    done = smoke.command("show", str(path.relative_to(smoke.folder)))
    assert done.returncode == 0, done.stderr
    facts = json.loads(path.read_text())
    for expected in (
        "stage evaluation",
        "norm: l2",
        "attacks.0.kind: pgd",
        "eps 0.5, labels shifted by 0: ",
        "% of 450",
        facts["key"],
        "cost: ",
    ):
        assert expected in done.stdout
    model = smoke.command(
        "show", str(reference(smoke, "model", "digits-on-D_det-pathway-2-probed-seed0").relative_to(smoke.folder))
    )
    assert "epoch 3, non-robust: " in model.stdout
    (table,) = (smoke.folder / "results/artifacts/table").glob("smoke-A7-*.json")
    view = smoke.command("show", str(table.relative_to(smoke.folder)))
    assert "smoke/tables/A7.csv" in view.stdout
    assert smoke.command("show", "table/smoke-A7", "--study", "smoke").stdout == view.stdout
    assert "evaluation/digits-on-D_det-pathway-1-test-seed0-" in view.stdout
    chain = smoke.command("why", str(table.relative_to(smoke.folder))).stdout.splitlines()
    assert sum(line.startswith("evaluation/") for line in chain) == 2
    assert any(line.startswith("      data/digits-") for line in chain)
    missing = smoke.command("show", "results/artifacts/model/nothing.json")
    assert missing.returncode == 1
    assert missing.stderr.strip() == "robustfeatures: results/artifacts/model/nothing.json: there is no such reference"


MODEL = "results/artifacts/model/digits-0123456789abcdef.json"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("push", "elsewhere", "--store", "nowhere"), "nowhere: there is no store here"),
        (("status", "--watch"), "--watch: needs a terminal"),
        (("accept", "--reason", " "), "--reason: empty"),
        (("build", MODEL, "--parts", "2"), "--parts: give --part, too"),
        (("build", MODEL, "--part", "1", "--parts", "2"), f"{MODEL}: the stage model has no parts"),
        (("export", MODEL, "out", "--format", "npz", "--study", "smoke"), f"--study: {MODEL} is a path"),
    ],
)
def test_commands_that_refuse_in_one_line(smoke: Workspace, arguments: tuple[str, ...], problem: str) -> None:
    done = smoke.command(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"robustfeatures: {problem}")
    assert not (smoke.folder / "elsewhere").exists()


def test_a_command_whose_output_is_closed(smoke: Workspace) -> None:
    command = f"PYTHONPATH=src {shlex.quote(sys.executable)} -m robustfeatures describe A1 >&-"
    done = subprocess.run(["sh", "-c", command], cwd=smoke.folder, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_export_by_label(smoke: Workspace, tmp_path: Path) -> None:
    done = smoke.command("export", "digits-D_rand-seed0", str(tmp_path / "D_rand.npz"), "--format", "npz")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "D_rand.npz").exists()
    refused = smoke.command("export", "digits-D_random", str(tmp_path / "no.npz"), "--format", "npz")
    assert refused.returncode == 1
    assert "digits-D_random: there is no artifact with this label" in refused.stderr


def test_why_names_what_differs_upstream(built: Workspace) -> None:
    built.edit("workflow/studies/smoke.yaml", "eps: 0.75, step_size: 0.15", "eps: 0.8, step_size: 0.15")
    built.build()
    evaluations = built.folder / "results" / "artifacts" / "evaluation"
    same_label = evaluations.glob("digits-on-D_R-images-downstream-test-seed0-*.json")
    found = sorted(same_label, key=lambda path: path.stat().st_mtime_ns)
    assert len(found) == 2
    # The label has two builds. The configured study names the newer one.
    done = built.command("why", "digits-on-D_R-images-downstream-test-seed0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"evaluation/{found[-1].stem}"
    assert "model/digits-adversarial-seed0-" in done.stdout
    assert "training.adversary.eps: 0.75 -> 0.8" in done.stdout
    assert f"differs from {found[0].name} in" in done.stdout


@pytest.mark.slow
def test_status_and_gc(built: Workspace) -> None:
    complete = built.command("status")
    assert complete.stdout.splitlines()[0] == "study smoke: 44 of 44 artifacts are there"
    assert built.command("verify").stdout == "every payload is whole\n"
    (built.folder / "results/store").rename(built.folder / "moved")
    lost = built.command("status").stdout
    assert re.search(r"\nthe store results/store lacks \d+ artifacts that had been made; --store names", lost)
    assert built.command("status", "--store", "moved").stdout == complete.stdout
    assert built.command("gc", "--store", "moved").stdout.startswith(
        "kept: what the studies that were planned here use: smoke\n"
    )
    (built.folder / "moved").rename(built.folder / "results/store")
    figure = built.folder / "results/smoke/figures/A1.pdf"
    figure.rename(figure.with_suffix(".aside"))
    assert "lacks figure/smoke-A1-" in built.command("status", "--all").stdout
    figure.with_suffix(".aside").rename(figure)
    built.edit("workflow/studies/smoke.yaml", "learning_rate: 0.01", "learning_rate: 0.02")
    lacking = built.command("status", "--all").stdout
    assert "model/digits-on-D_det-pathway-2-probed-seed0-" in lacking
    unknown = built.command("gc", "--study", "smok").stderr
    assert unknown.endswith("--study: 'smok' is unknown (did you mean 'smoke'?)\n")
    refused = built.command("gc", "--delete")
    assert refused.returncode == 1
    assert "not built yet" in refused.stderr
    built.snakemake()
    payloads = built.payloads()
    kept = "kept: what the studies that were planned here use: smoke"
    assert built.command("gc", "--delete").stdout == f"{kept}\nkept: 2 payloads younger than 7 days\n"
    first, *listed = built.command("gc", "--everyone").stdout.splitlines()
    assert first == kept
    assert len(listed) == 4
    assert listed[0] == "not kept: 2 payloads younger than 7 days"
    assert listed[1].startswith("would remove model/digits-on-D_det-pathway-2-probed-seed0-")
    assert listed[2].startswith("would remove evaluation/digits-on-D_det-pathway-2-probed-")
    assert listed[3].startswith("would remove 2 payloads, ")
    assert built.payloads() == payloads
    # An acceptance of the payload that goes is left over, and goes with it.
    (named,) = [key for key in payloads if listed[1].endswith(f"/{key}")]
    stands = {"another": {"kept": named, "content": "", "before": {}}}
    accepted = write_acceptance(built.store, {"when": "2026-01-01", "stands": stands})
    built.command("gc", "--everyone", "--delete")
    assert not accepted.exists()
    assert len(built.payloads()) == len(payloads) - 2
    # With another study configured, the one that has results here is kept.
    (built.folder / "other.yaml").write_text("study: digits\nstore: results/store\n")
    told = built.command("gc", "--everyone", "--config", "other.yaml")
    assert told.stdout == f"{kept}\n", told.stderr
    assert "Nothing to be done" in built.snakemake().stderr


def test_open_dataset_and_load_model_refuse_in_one_line(smoke: Workspace) -> None:
    with pytest.raises(UserError, match="there is no such reference"):
        open_dataset(smoke.folder / "results/artifacts/data/nothing.json")
    with pytest.raises(UserError, match=r"no split 'tset' \(did you mean 'test'\?\)"):
        open_dataset(reference(smoke, "data", "digits"), "tset")
    with pytest.raises(UserError, match=r"holds no model\.safetensors; an artifact of the stage data has none$"):
        load_model(reference(smoke, "data", "digits"))


def test_snakemakes_report_has_the_views_with_their_captions(smoke: Workspace, tmp_path: Path) -> None:
    smoke.snakemake("--report", str(tmp_path / "report.html"))
    report = (tmp_path / "report.html").read_text()
    assert "A table of the study smoke:" in report
    assert "A figure of the study smoke as bitmap" in report
