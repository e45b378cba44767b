"""Follow the recipes of CONTRIBUTING.md in a copy of the tree, and run the result."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.conftest import REPOSITORY

GUIDE = REPOSITORY / "CONTRIBUTING.md"
# The mark before a file's name, by the language of the block.
MARKS = {"python": "# ", "yaml": "# ", "diff": "--- "}


@dataclass(frozen=True)
class Block:
    """A file to write, or a diff to apply."""

    file: str
    language: str
    text: str

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        if self.language != "diff":
            assert not path.exists(), f"{self.file} is there already"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text)
            return
        for hunk in self.text.split("@@\n"):
            lines = hunk.splitlines(keepends=True)
            old, new = ("".join(line[1:] for line in lines if line[0] in marks) for marks in (" -", " +"))
            text = path.read_text()
            assert text.count(old) == 1, f"CONTRIBUTING.md changes what {self.file} does not have:\n{old}"
            path.write_text(text.replace(old, new))


def blocks(text: str) -> Iterator[Block]:
    for token in MarkdownIt().parse(text):
        if token.type == "fence" and token.info in MARKS:
            first, _, rest = token.content.partition("\n")
            assert first.startswith(MARKS[token.info]), f"a block without a file name: {first}"
            yield Block(first.removeprefix(MARKS[token.info]), token.info, rest)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with every block of the guide applied."""
    folder = tmp_path_factory.mktemp("contributing") / "tree"
    shutil.copytree(REPOSITORY / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for block in blocks(GUIDE.read_text()):
        block.apply(folder)
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    return folder


def run(tree: Path, *arguments: str) -> str:
    """The output of Python with the code of the copy and the tests of this repository."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": f"{tree / 'src'}:{REPOSITORY}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


BUILD = """
import sys
from pathlib import Path
import robustfeatures
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.in_process import built_study
assert Path(robustfeatures.__file__).is_relative_to(Path.cwd()), robustfeatures.__file__
plan, results = built_study(Path.cwd(), read_yaml(Path(sys.argv[1])))
print(*sorted({recipe.stage.name for recipe in plan.recipes.values()}))
print((results / "tables" / "X7.csv").read_text())
"""


def test_the_guide_has_a_recipe_for_everything_that_grows() -> None:
    headings = [line.removeprefix("## ") for line in GUIDE.read_text().splitlines() if line.startswith("## ")]
    recipes = {"A network", "An attack", "A data source", "A way of deriving a set", "An experiment"}
    assert recipes <= set(headings)
    assert "(CONTRIBUTING.md)" in (REPOSITORY / "README.md").read_text()


def test_a_recipe_takes_three_files_and_a_test() -> None:
    for section in GUIDE.read_text().split("\n## "):
        files = {block.file for block in blocks(section)}
        assert len([file for file in files if not file.startswith("tests/")]) <= 3, section.partition("\n")[0]


def test_the_files_of_the_tree_are_there() -> None:
    tree = next(token.content for token in MarkdownIt().parse(GUIDE.read_text()) if token.info == "text")
    names = [
        name.rstrip(",") for line in tree.splitlines() for name in line.split("  ")[0 if line[:1] != " " else 1].split()
    ]
    for name in names:
        assert any(
            list(folder.glob(name.rstrip("/"))) for folder in (REPOSITORY, REPOSITORY / "src" / "robustfeatures")
        ), name


def test_its_own_tests_pass(tree: Path) -> None:
    run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "tests")


def test_its_study_is_built(tree: Path) -> None:
    stages, _, table = run(tree, "-c", BUILD, "workflow/studies/one-step.yaml").partition("\n")
    assert stages == "data derived evaluation model"
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [(row["row"], row["eps"]) for row in rows] == [
        (name, eps) for name in ("D", "D_negative") for eps in ("0.0", "0.25", "0.5")
    ]
    accuracies = [float(row["accuracy"]) for row in rows]
    # Lines are easy to learn, and one step takes some of them away.
    assert accuracies[0] > 90
    assert accuracies[0] > accuracies[1] > accuracies[2]
