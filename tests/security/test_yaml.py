"""YAML that would run a program, exhaust the memory, or write to the terminal."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from robustfeatures.cli import app
from robustfeatures.errors import UserError
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.conftest import REPOSITORY, Workspace
from tests.security.hostile import assert_one_line

STUDY = "workflow/studies/smoke.yaml"
# Each line holds the one before it ten times.
BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
TAGS = {
    "apply": 'harm: !!python/object/apply:os.system ["touch marker"]\n',
    "new": 'harm: !!python/object/new:os.system ["touch marker"]\n',
    "key": '? !!python/object/apply:os.system ["touch marker"]\n: 1\n',
}


@pytest.mark.parametrize("file", [STUDY, "config.yaml"])
@pytest.mark.parametrize("tag", TAGS)
def test_the_command_line_makes_no_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, tag: str
) -> None:
    """Nor does Snakemake, which reads both files in the same way."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(REPOSITORY / "workflow" / "studies", "workflow/studies")
    Path("config.yaml").write_text("study: smoke\n")
    Path(file).write_text(TAGS[tag] + Path(file).read_text())
    with pytest.raises(UserError) as refused:
        app(["status"], standalone_mode=False)
    assert_one_line(str(refused.value))
    said = f"{file}: line 1: could not determine a constructor for the tag 'tag:yaml.org,2002:python"
    assert str(refused.value).startswith(said)
    assert not Path("marker").exists()


def test_snakemake_evaluates_no_templates(workspace: Workspace) -> None:
    """Its own reader of configuration files runs the expressions of such a file."""
    harm = "__use_yte__: true\nharm: ?__import__('os').system('touch marker')\n"
    path = workspace.folder / "config.yaml"
    path.write_text(harm + path.read_text())
    done = workspace.snakemake("-n", check=False)
    assert done.returncode == 1
    assert "config.yaml: __use_yte__: unknown field" in done.stdout + done.stderr
    assert not (workspace.folder / "marker").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "more than 1000000 values"),
        ("a: &a [*a]\n", "line 1: the value holds itself"),
        ("a: " + "[" * 20_000, "nested too deeply"),
        ("title: \x1b]0;owned\x07\n", "character 7: special characters are not allowed"),
        ("title: a\0b\n", "character 8: special characters are not allowed"),
        ("\x1b: &x\n", "character 0"),
        ('"\\e]0;owned\\a": 1\n"\\e]0;owned\\a": 2\n', "appears twice"),
        ("a: *nothing\n", "found undefined alias"),
    ],
    ids=["aliases of aliases", "holds itself", "deep", "escape", "NUL", "key", "twice", "alias"],
)
def test_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_yaml(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert_one_line(str(caught.value))
