"""Real runs with names of settings and files that contain commands for a shell, Snakemake's templates or a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from robustfeatures.data import folder
from robustfeatures.data.settings import Data
from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.study.config import read_config
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.conftest import Workspace, workspace_in
from tests.security.hostile import assert_harmless, assert_one_line

STUDY = "workflow/studies/smoke.yaml"
SHELL = 'it\'s "a" $(touch touched) `touch touched`; touch touched & touch touched | {threads} {{x}} {output} $HOME \\'
TERMINAL = "\x1b]0;owned\x07\x1b[2J"
CLASSES = ("<img src=x onerror=x>", "$(touch touched); touch touched", f"bell {TERMINAL}")


def quoted(text: str) -> str:
    """A YAML string: JSON's are."""
    return json.dumps(text)


@pytest.fixture
def hostile(tmp_path: Path) -> Workspace:
    """A workflow in a folder with such a name, whose study and configuration name such folders."""
    workspace = workspace_in(tmp_path / 'it\'s a "folder" $(touch touched); touch touched')
    photographs = workspace.folder / f"photographs {SHELL}\n{TERMINAL}"
    for label, name in enumerate(CLASSES):
        (photographs / name).mkdir(parents=True)
        for number in range(20):
            image = f"{number} $(touch touched) {TERMINAL}.png"
            Image.new("L", (8, 8), 40 * label + number).save(photographs / name / image, "PNG")
    (photographs / CLASSES[0] / f"broken\n2026-01-01 00:00:00,000 INFO forged {TERMINAL}.png").write_bytes(b"no image")
    sha256 = folder.compute_digest(Data(source="folder", path=str(photographs)))
    source = f"source: folder\n  path: {quoted(photographs.name)}\n  sha256: {sha256}\n  skip_unreadable: true"
    workspace.edit(STUDY, "source: digits", source)
    workspace.edit(STUDY, "title: Smoke test on handwritten digits", f"title: {quoted(SHELL + TERMINAL)}")
    workspace.edit("config.yaml", "study: digits", "study: smoke")
    workspace.edit("config.yaml", "store: results/store", f"store: {quoted(f'store {SHELL}' + chr(10) + TERMINAL)}")
    workspace.edit("config.yaml", "raw: results/raw", f"raw: {quoted(f'raw {SHELL}')}")
    return Workspace(workspace.folder)


@pytest.mark.slow
def test_a_study_in_such_a_folder(hostile: Workspace, tmp_path: Path) -> None:
    before = set(hostile.folder.iterdir())
    planned = hostile.snakemake("-n", "-p")
    assert "--log results/logs/data/folder-" in planned.stdout
    lacking = hostile.command("status", "--all")
    assert_harmless(lacking.stdout + lacking.stderr)
    (name,) = [line.split()[1] for line in lacking.stdout.splitlines() if line.startswith("  lacks data/")]
    hostile.snakemake(f"results/artifacts/{name}.json")
    # The payload lies where the configuration says, letter for letter, and nothing else was made anywhere.
    made_by_snakemake = {hostile.folder / ".snakemake", hostile.folder / "results"}
    (store,) = set(hostile.folder.iterdir()) - before - made_by_snakemake
    assert store.name == f"store {SHELL}\n{TERMINAL}"
    assert len(list(store.glob("*/data.zarr"))) == 1
    assert not list(tmp_path.rglob("touched"))
    assert [one.name for one in tmp_path.iterdir()] == [hostile.folder.name]
    log = (hostile.folder / f"results/logs/{name}.log").read_text()
    assert "1 of 61 images cannot be read and are skipped" in log
    assert_harmless(log)
    assert [line for line in log.splitlines() if line.startswith("2026-01-01")] == []
    reference = f"results/artifacts/{name}.json"
    for command in (("show", reference), ("why", reference), ("status",), ("verify",), ("fetch",)):
        done = hostile.command(*command)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
        assert_harmless(done.stdout + done.stderr)
    refused = hostile.command("export", reference, "out", "--format", "folder")
    assert refused.returncode == 1
    assert_one_line(refused.stderr)
    assert not list(tmp_path.rglob("touched"))
    assert not (hostile.folder / "out").exists()


def test_a_clone_whose_path_has_braces_is_refused(tmp_path: Path) -> None:
    workspace = workspace_in(tmp_path / "clone {of} mine")
    done = workspace.snakemake("-n", check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert f"{workspace.folder}: Snakemake reads braces" in done.stdout + done.stderr
    assert not (workspace.folder / "results").exists()


@pytest.mark.parametrize("name", ["$(touch touched)", "a; touch touched", "../up", "{output}", "", "-rf", "a\n"])
@pytest.mark.parametrize("field", ["training", "derived", "study", "source"])
def test_names_that_become_files_and_commands(workspace: Workspace, field: str, name: str) -> None:
    match field:
        case "training":
            workspace.edit(STUDY, "  downstream: *standard", f"  {quoted(name)}: *standard")
        case "derived":
            workspace.edit(STUDY, "  D_rand: {", f"  {quoted(name)}: {{")
        case "source":
            workspace.edit(STUDY, "  source: digits", f"  source: {quoted(name)}")
        case "study":
            workspace.edit("config.yaml", "study: smoke", f"study: {quoted(name)}")
    with pytest.raises(UserError, match=r"(smoke|config)\.yaml: ") as caught:
        unfold(read_config(read_yaml(workspace.folder / "config.yaml")), workspace.folder / "workflow" / "studies")
    assert_one_line(str(caught.value))


@pytest.mark.parametrize(
    ("file", "old", "new", "shown"),
    [
        (STUDY, "source: digits", "source: folder\n  path: {}\n  sha256: x", "data.path: "),
        (STUDY, "  A7: {}", "  {}: 1", "experiments."),
        (STUDY, "    schedule: one-cycle", "    schedule: {}", "training.standard.schedule: "),
        (STUDY, "source: standard, training: downstream", "source: {}, training: downstream", "source: "),
        ("config.yaml", "device: auto", "device: {}", "device: "),
        ("config.yaml", "device: auto", "{}: auto", "unknown field"),
    ],
)
def test_wrong_values_are_shown_harmlessly(workspace: Workspace, file: str, old: str, new: str, shown: str) -> None:
    text = (workspace.folder / file).read_text()
    assert old in text
    (workspace.folder / file).write_text(text.replace(old, new.replace("{}", quoted(f"two\nlines {TERMINAL}")), 1))
    done = workspace.command("status")
    assert done.returncode == 1
    assert shown in done.stderr
    assert_one_line(done.stderr)


def test_snakemake_shows_a_wrong_value_harmlessly(workspace: Workspace) -> None:
    workspace.edit("config.yaml", "device: auto", f"device: {quoted(TERMINAL)}")
    done = workspace.snakemake("-n", check=False)
    assert done.returncode == 1
    assert "config.yaml: device: " in done.stdout + done.stderr
    assert_harmless(done.stdout + done.stderr)
