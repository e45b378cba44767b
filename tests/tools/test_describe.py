"""`describe`, and the names of all pieces that a study lacks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from robustfeatures.engine.settings import Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.catalogue import experiment_modules
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.extends import read_values
from robustfeatures.pipeline.study.yaml import read_yaml
from robustfeatures.tools.describe import describe, find_description
from robustfeatures.tools.field_docs import read_field_docs
from tests.tools.made import STUDIES


def test_what_a1_uses_of_a_study() -> None:
    lines = list(describe("a1", STUDIES, "digits"))
    assert lines[0] == "A1: Robust and non-robust data sets"
    assert "Ilyas et al. (2019)" in lines[1]
    assert "not-bugs-2019, Section 3.1, Figure 2 and Table 7." in lines
    assert lines[lines.index("uses of the study digits") + 1 : -1] == [
        "  data",
        "  architecture",
        "  training: standard, adversarial, downstream",
        "  derived: D_NR-images, D_NR-noise, D_R-images, D_R-noise",
        "  robustness",
        "reads for each seed: 6 of the stage evaluation",
    ]
    assert lines[-1].startswith("studies with it: digits, ")


@pytest.mark.parametrize("identifier", experiment_modules())
def test_every_experiment(identifier: str) -> None:
    lines = list(describe(identifier, STUDIES, "digits"))
    assert lines[-1].startswith("studies with it: ")
    assert lines[-1] != "studies with it: none"
    assert any(line.startswith("uses of the study ") for line in lines)


def reduced_study(identifier: str, uses: Mapping[str, Sequence[str]], whole: Mapping[str, Any]) -> dict[str, Any]:
    """The study `whole` with one experiment, and of its pieces with these alone."""
    study = {name: whole[name] for name in ("title", "seeds")}
    study["experiments"] = {identifier: whole["experiments"][identifier]}
    for part, names in uses.items():
        study[part] = {name: whole[part][name] for name in names} if names else whole[part]
    # Derived sets and grids name trainings, also those that this experiment does not use.
    naming = [*study.get("derived", {}).values(), *study.get("grids", {}).values()]
    named = {each[field] for each in naming for field in ("source", "training", "base") if field in each}
    return {**study, "training": study.get("training", {}) | {name: whole["training"][name] for name in named}}


@pytest.mark.parametrize("identifier", experiment_modules())
def test_what_an_experiment_uses_is_all_that_it_needs(identifier: str, tmp_path: Path) -> None:
    found = find_description(identifier, STUDIES, "digits-full")
    plan_study(tmp_path, reduced_study(identifier, found.uses, read_values(STUDIES / f"{found.example}.yaml").values))


@pytest.mark.parametrize("identifier", ["A1", "B3", "C7", "D4"])
def test_an_experiment_needs_all_that_it_uses(identifier: str, tmp_path: Path) -> None:
    uses = find_description(identifier, STUDIES, "digits-full").uses
    whole = read_values(STUDIES / "digits-full.yaml").values
    study = reduced_study(identifier, uses, whole)
    for part, names in uses.items():
        for name in names or [""]:
            lacking = {one: value for one, value in study[part].items() if one != name} if name else None
            with pytest.raises(UserError, match=rf"'{name}' is (missing|unknown)" if name else rf"{part}: "):
                plan_study(tmp_path, {**study, part: lacking})


def test_settings_of_a_study_stand_for_those_without_default() -> None:
    lines = list(describe("B1", STUDIES, "smoke"))
    assert "settings, as in the study smoke" in lines
    assert "  pathway_1: pathway-1 (a study must give it)" in lines
    window = lines.index("  window: 5")
    assert lines[window + 1] == "      The number of epochs over which curves are smoothed."
    assert "  training: standard, pathway-1, pathway-2" in lines


@dataclass(frozen=True, kw_only=True)
class Base(Strict):
    first: int
    """Of the base."""
    second: int


@dataclass(frozen=True, kw_only=True)
class Derived(Base):
    """A string that is no field's."""

    second: int
    """Of the derived class,
    on two lines.
    """
    third: int = 0

    def method(self) -> None:
        """A method's."""


def test_docstrings_of_fields() -> None:
    assert read_field_docs(Derived) == {"first": "Of the base.", "second": "Of the derived class, on two lines."}


def test_an_unknown_experiment() -> None:
    with pytest.raises(UserError, match=r"^A77: there is no such experiment \(did you mean 'A7'\?\)$"):
        list(describe("A77", STUDIES, "digits"))


def plan_study(folder: Path, study: dict[str, Any]) -> None:
    (folder / "lacking.yaml").write_text(yaml.safe_dump(study))
    unfold(Config(study="lacking"), folder)


def refusal(folder: Path, study: dict[str, Any]) -> str:
    with pytest.raises(UserError) as caught:
        plan_study(folder, study)
    return str(caught.value).removeprefix(f"{folder / 'lacking.yaml'}: ")


def test_a_study_names_all_pieces_that_it_lacks(tmp_path: Path) -> None:
    study = read_yaml(STUDIES / "smoke.yaml")
    study["training"].pop("adversarial")
    study["derived"] = {name: one for name, one in study["derived"].items() if one["source"] != "adversarial"}
    study["derived"].pop("D_NR-noise")
    study.pop("robustness")
    assert refusal(tmp_path, study).split("; experiment") == [
        "robustness: the field is missing",
        "s A1, A2 and A7 need it; training: 'adversarial' is missing "
        "(known: downstream, pathway-1, pathway-2, standard)",
        " A1 needs it; derived: 'D_NR-noise' is missing (did you mean 'D_NR-images'?)",
        " A1 needs it; derived: 'D_R-images' is missing (did you mean 'D_NR-images'?)",
        " A1 needs it; derived: 'D_R-noise' is missing (did you mean 'D_NR-images'?)",
        " A1 needs it; derived: 'D_rand-robust' is missing (did you mean 'D_rand'?)",
        " A2 needs it; derived: 'D_det-robust' is missing (known: D_NR-images, D_det, D_rand)",
        "s A2 and A7 need it",
    ]


def test_an_experiment_in_small_letters(tmp_path: Path) -> None:
    study = read_yaml(STUDIES / "smoke.yaml")
    study["experiments"] = {"a1": {}}
    assert refusal(tmp_path, study) == "experiments.a1: there is no such experiment (did you mean 'A1'?)"


def test_a_study_with_a_long_name_of_a_grid(tmp_path: Path) -> None:
    study = read_yaml(STUDIES / "smoke.yaml")
    name = "g" * 80
    fields = {
        "learning_rate": [0.1],
        "weight_decay": [0.001],
        "batch_size": [32],
        "epochs": [3],
        "schedule": ["constant"],
    }
    study["grids"] = {name: {"base": "downstream", "cells": [fields]}}
    study["experiments"] = {"A2": {"search": {"grid": name, "chosen_on": "original", "sets": ["D_rand"]}}}
    with pytest.raises(UserError, match=r"lacking\.yaml: the name \S+ has \d+ bytes, and 180 are possible; shorten"):
        plan_study(tmp_path, study)


def test_a_study_that_is_named_and_has_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workflow" / "studies").mkdir(parents=True)
    (tmp_path / "workflow" / "studies" / "broken.yaml").write_text("title: x\n")
    (tmp_path / "config.yaml").write_text("study: broken\n")
    command = [sys.executable, "-m", "robustfeatures", "describe", "A1", "--study", "broken"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("robustfeatures: workflow/studies/broken.yaml: ")


def test_without_a_command_there_is_the_help_and_no_error() -> None:
    done = subprocess.run([sys.executable, "-m", "robustfeatures"], capture_output=True, text=True, check=False)
    assert "robustfeatures [OPTIONS] COMMAND" in done.stdout
    assert (done.returncode, done.stderr) == (2, "")
