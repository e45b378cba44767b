"""Every command of README and docs runs as it is written, or stands below with the reason why it cannot run here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from docs.generators.results import shows_photographs
from robustfeatures.pipeline.study.study import read_study
from tests.conftest import REPOSITORY
from tests.documentation.conftest import Reader
from tests.documentation.pages import LANGUAGES, PAGES, find_blocks, find_pages, page_id

TESTS = "it runs these tests"
MNIST = "the images of MNIST are not in the repository; the test below reads the study"
INSTALLS = "it makes an environment; .ci/run does so"
CANNOT_RUN = {
    "python -m venv .venv && source .venv/bin/activate": INSTALLS,
    "pip install -e .": INSTALLS,
    "pip install -e '.[slurm]'": INSTALLS,
    "pip install -e '.[test,docs]'": INSTALLS,
    "pip install -e '.[test,docs]' && pytest": INSTALLS,
    "ruff format . && ruff check . && mypy": "tests/test_quality.py runs these, without changing files",
    "mkdocs build --strict": "tests/documentation/test_site.py runs it",
    "pytest tests/models": TESTS,
    "pytest": TESTS,
    "pytest -m slow": TESTS,
    "robustfeatures fetch --study not-bugs-cifar10-fast": "it downloads 170 MB; tests/data/test_download.py does so",
    "snakemake --profile profiles/slurm --config study=not-bugs-cifar10-fast": "it submits jobs; tests/slurm does so",
    "snakemake --cores all --config study=at-odds-mnist-c7": MNIST,
    "snakemake --cores all --config study=cross-digits-mnist10k": MNIST,
    "mkdir /shared/store && chgrp our-group /shared/store && chmod 2775 /shared/store": "it takes an administrator",
}
# These take minutes to hours. They are planned.
ONLY_PLANNED = {
    "snakemake --cores all --config study=cifar10-mini",
    "snakemake --cores all --config study=digits-full rows_per_job=4",
    "snakemake --cores all --config study=feature-learning-photographs seeds_per_job=1",
    "snakemake --cores all --config study=theory",
}


@pytest.mark.slow
@pytest.mark.parametrize("path", find_pages("bash"), ids=page_id)
def test_commands_run_as_written(path: Path, reader: Reader) -> None:
    for block in find_blocks(path, "bash"):
        for command in block.commands:
            if command in ONLY_PLANNED:
                reader.type(f"{command} -n")
            elif command not in CANNOT_RUN and command not in reader.done:
                reader.type(command)


@pytest.mark.parametrize("path", sorted((REPOSITORY / "docs").glob("*/*.yaml")), ids=page_id)
def test_the_studies_beside_results_can_be_read(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are copied to the other studies, and may extend these and one another.

    `study.yaml` gets the name of its folder, another file that of its folder and its own. The folder's name also tells
    whether their images are photographs.
    """
    for folder in ("mnist10k/train", "cifar10"):
        (tmp_path / "results" / "raw" / folder).mkdir(parents=True)
    shutil.copytree(REPOSITORY / "workflow" / "studies", tmp_path / "studies")
    copies = {}
    for each in path.parent.glob("*.yaml"):
        name = path.parent.name if each.name == "study.yaml" else f"{path.parent.name}-{each.stem}"
        copies[each] = shutil.copy(each, tmp_path / "studies" / f"{name}.yaml")
    monkeypatch.chdir(tmp_path)
    study = read_study(copies[path])
    assert study.experiments
    sets = [study.data, *(study.other_data or {}).values()]
    of_cifar10 = any("cifar10" in f"{each.source} {each.path}" for each in sets if each)
    assert shows_photographs(path.parent.name) == of_cifar10


def test_the_lists_name_nothing_that_no_page_says() -> None:
    said = {command for path in PAGES for block in find_blocks(path, "bash") for command in block.commands}
    assert ONLY_PLANNED | CANNOT_RUN.keys() <= said
    assert not ONLY_PLANNED & CANNOT_RUN.keys()


def test_every_block_says_its_language() -> None:
    """A block of commands under another name would escape the test above."""
    assert [
        (block.page, block.language) for path in PAGES for block in find_blocks(path) if block.language not in LANGUAGES
    ] == []
