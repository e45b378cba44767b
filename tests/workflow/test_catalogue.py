"""What Snakemake's catalogue of workflows asks for."""

from __future__ import annotations

import re

import yaml

from robustfeatures.pipeline.study.config import read_config
from tests.conftest import REPOSITORY


def test_the_catalogue_finds_what_it_shows() -> None:
    usage = yaml.safe_load((REPOSITORY / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert usage["software-stack-deployment"]["conda"]
    assert usage["report"]
    assert (REPOSITORY / "Snakefile").is_file()


def test_every_setting_is_explained_with_its_default() -> None:
    values = yaml.safe_load((REPOSITORY / "config.yaml").read_text())
    read_config(values)
    text = (REPOSITORY / "config" / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", text, re.MULTILINE)
    written = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
    # config.yaml only shows how a remote is written.
    assert {name: default.strip("`") for name, default in rows} == {**written, "remote": "none"}
