"""Generated pages and schemas are current, and the schemas accept what the reader of studies accepts."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from docs.generators.files import make_files
from docs.generators.schemas import make_config_schema, make_schemas, make_study_schema
from robustfeatures.errors import UserError
from robustfeatures.pipeline.study.study import read_study
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.conftest import REPOSITORY

STUDIES = REPOSITORY / "workflow" / "studies"
# Folders in which everything is generated but these pages.
FOLDERS = {"docs/experiments": (), "docs/reference": ("docs/reference/glossary.md",), "workflow/schemas": ()}


# Made when they are needed, because every process of pytest imports this module.
@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return make_files()


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    return Draft202012Validator(make_study_schema())


def test_committed_files_are_current(files: dict[str, str]) -> None:
    old = [path for path, text in files.items() if (REPOSITORY / path).read_text(encoding="utf-8") != text]
    assert not old, "run `python -m docs.generators`"


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_file_is_left_over(files: dict[str, str], folder: str) -> None:
    there = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / folder).iterdir()}
    assert there - set(FOLDERS[folder]) == {path for path in files if path.startswith(f"{folder}/")}


def test_every_field_says_what_it_is() -> None:
    classes = {**make_schemas()[0], "Config": make_config_schema()}
    assert not [
        f"{name}.{field}"
        for name, schema in classes.items()
        for field, one in schema.get("properties", {}).items()
        if "description" not in one and field != "kind"
    ]


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_studies_are_valid(schema: Draft202012Validator, path: Path) -> None:
    assert [error.message for error in schema.iter_errors(read_yaml(path))] == []


@pytest.mark.parametrize(
    "path", [REPOSITORY / "config.yaml", *sorted(STUDIES.glob("*.yaml"))], ids=lambda path: path.stem
)
def test_the_first_line_names_the_schema(path: Path) -> None:
    first, _, _ = path.read_text(encoding="utf-8").partition("\n")
    schema = (path.parent / first.removeprefix("# yaml-language-server: $schema=")).resolve()
    assert schema.relative_to(REPOSITORY / "workflow" / "schemas").name.partition(".")[0] in ("study", "config")
    assert schema.is_file()


def test_config_is_valid_and_a_misspelt_field_is_not() -> None:
    config, values = Draft202012Validator(make_config_schema()), read_yaml(REPOSITORY / "config.yaml")
    assert config.is_valid(values)
    assert not config.is_valid({**values, "stroe": "results/store"})
    assert not config.is_valid({**values, "threads_per_job": 0})


def _change(place: str, value: Any) -> Callable[[Any], None]:
    """Set the value at a place such as `training.standard.epochs`; `...` removes it."""
    *outer, last = place.split(".")

    def change(study: Any) -> None:
        for part in outer:
            study = study[int(part)] if isinstance(study, list) else study[part]
        if value is ...:
            del study[last]
        else:
            study[last] = value

    return change


# What is done to the study smoke, and whether the result is a study.
CHANGES = {
    "nothing": (_change("title", "Another title"), True),
    "misspelt field": (_change("titel", "Smoke"), False),
    "no seeds": (_change("seeds", ...), False),
    "seed below 0": (_change("seeds", [-1]), False),
    "empty list": (_change("seeds", []), False),
    "text for a number": (_change("training.standard.epochs", "three"), False),
    "fraction for a whole number": (_change("training.standard.epochs", 1.5), False),
    "whole number for a number": (_change("training.standard.learning_rate", 1), True),
    "misspelt field of a training": (_change("training.standard.epoch", 3), False),
    "misspelt field of an adversary": (_change("training.adversarial.adversary.epsilon", 0.5), False),
    "unknown choice": (_change("training.standard.schedule", "cosine"), False),
    "unknown kind": (_change("derived.D_rand.method.kind", "targetted"), False),
    "field of another kind": (_change("derived.D_rand.method.start", "noise"), False),
    "no kind": (_change("derived.D_rand.method.kind", ...), False),
    "name that is no file name": (_change("training.a/b", {"epochs": 1, "batch_size": 1, "learning_rate": 0.1}), False),
    "misspelt setting of an experiment": (_change("experiments.B1.windows", 3), False),
    "setting of an experiment": (_change("experiments.B1.window", 3), True),
    "seeds of an experiment": (_change("experiments.A1", {"seeds": [0]}), True),
    "missing setting of an experiment": (_change("experiments.B1.pathway_1", ...), False),
    "unknown attack": (_change("robustness.attacks.0.kind", "fgsm"), False),
    "null for a field that may be off": (_change("training.standard.adversary", None), True),
    "null for a field that may not": (_change("training.standard.epochs", None), False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_schema_and_reader_agree(schema: Draft202012Validator, name: str, tmp_path: Path) -> None:
    change, is_study = CHANGES[name]
    study = deepcopy(read_yaml(STUDIES / "smoke.yaml"))
    change(study)
    assert schema.is_valid(study) == is_study
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    if is_study:
        read_study(tmp_path / "study.yaml")
    # The settings of experiments are read when the study is planned.
    elif "experiment" not in name:
        with pytest.raises(UserError):
            read_study(tmp_path / "study.yaml")


@pytest.mark.parametrize(
    ("values", "is_study"),
    [
        ({"extends": "smoke", "title": "Longer", "training": {"standard": {"epochs": 6}}}, True),
        ({"title": "Longer", "training": {"standard": {"epochs": 6}}}, False),
        ({"extends": "smoke", "training": {"standard": {"epoch": 6}}}, False),
        ({"extends": "smoke", "derived": {"D_rand": {"method": {"eps": 0.5}}}}, True),
        ({"extends": "smoke", "derived": {"D_rand": {"method": {"epsilon": 0.5}}}}, False),
        ({"extends": "smoke", "derived": {"D_rand": None}, "robustness": None, "experiments": {"A2": None}}, True),
        ({"extends": "smoke", "experiments": {"A77": None}}, False),
        (
            {
                "extends": "smoke",
                "experiments": {"*": None, "A1": {}},
                "derived": {"*": None, "D_rand": {"source": "x"}},
            },
            True,
        ),
        ({"extends": "smoke", "experiments": {"*": {}}}, False),
        ({"extends": "smoke", "derived": {"*": {}}}, False),
        ({"extends": "smoke", "derived": {"*D_rand": None}}, False),
        # A list replaces what was there, so its items are whole.
        ({"extends": "smoke", "robustness": {"attacks": [{"kind": "noise"}]}}, False),
        ({"extends": 3}, False),
    ],
)
def test_a_study_that_extends_another(schema: Draft202012Validator, values: Any, is_study: bool) -> None:
    assert schema.is_valid(values) == is_study


@pytest.mark.parametrize(("eps", "is_number"), [("8/255", True), (0.03, True), ("8 of 255", False), ("eight", False)])
def test_to_an_editor_a_fraction_is_text(schema: Draft202012Validator, eps: str | float, is_number: bool) -> None:
    study = read_yaml(STUDIES / "smoke.yaml")
    _change("robustness.eps", [eps])(study)
    assert schema.is_valid(study) == is_number
