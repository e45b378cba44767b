"""The Python and YAML of README and docs: Python runs as written, YAML is part of a study that can be read."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from robustfeatures.pipeline.study.study import read_study
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.conftest import REPOSITORY
from tests.documentation.conftest import Reader
from tests.documentation.pages import find_blocks, find_pages, page_id

STUDIES = "workflow/studies"
README = REPOSITORY / "README.md"
# tests/test_contributing.py applies the blocks of the guide. Other pages are generated, with parts of tested studies.
TESTED_ELSEWHERE = tuple(REPOSITORY / name for name in ("CONTRIBUTING.md", "docs/experiments", "docs/reference"))


def find_pages_to_test(language: str) -> list[Path]:
    return [page for page in find_pages(language) if not any(map(page.is_relative_to, TESTED_ELSEWHERE))]


def apply_files(path: Path, folder: Path) -> str:
    """Write the blocks that begin with the name of a file; returns the rest of the page's Python."""
    code = ""
    for block in find_blocks(path, "python"):
        first, _, rest = block.text.partition("\n")
        if first.startswith("# workflow/"):
            (folder / first.removeprefix("# ")).write_text(rest)
        else:
            code += block.text
    return code


@pytest.mark.parametrize("path", [path for path in find_pages_to_test("python") if path != README], ids=page_id)
def test_python_runs_as_written(path: Path, reader: Reader) -> None:
    code = apply_files(path, reader.folder)
    reader.run(sys.executable, "-c", code)


def test_the_python_of_the_readme_runs_and_makes_what_it_says(reader: Reader) -> None:
    code = apply_files(README, reader.folder)
    done = reader.run(sys.executable, "-c", f"{code}print(adversarial.shape, alike.shape)")
    table, shapes = done.stdout.splitlines()[:-1], done.stdout.splitlines()[-1]
    assert len(table) == 1 + 1 + 2 * 2
    assert "accuracy" in table[0]
    assert shapes == "torch.Size([64, 1, 8, 8]) torch.Size([64, 1, 8, 8])"


@pytest.mark.parametrize("path", find_pages_to_test("yaml"), ids=page_id)
def test_yaml_is_part_of_a_study(path: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(reader.folder)
    apply_files(path, reader.folder)
    study = Path(STUDIES, "documented.yaml")
    for block in find_blocks(path, "yaml"):
        values = yaml.safe_load(block.text)
        if "timm:" in block.text and find_spec("timm") is None:
            continue
        # Fields of the page stand in place of those of the default study.
        whole = values if "extends" in values else {**read_yaml(REPOSITORY / STUDIES / "digits.yaml"), **values}
        study.write_text(yaml.safe_dump(whole))
        read = read_study(study)
        assert all(getattr(read, field) is not None for field in values if field != "extends")
