"""Every experiment of the list has a module, a small run and a study at the paper's scale that plans."""

from __future__ import annotations

import re

import pytest

from robustfeatures.experiments.catalogue import experiment_modules, load_experiment
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.study import Study, read_study
from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "workflow" / "studies"
STUDIES = {path.stem: read_study(path) for path in sorted(FOLDER.glob("*.yaml"))}

LISTED = [
    f"{letter}{number}"
    for letter, count in (("A", 13), ("B", 7), ("C", 8), ("D", 4), ("E", 4), ("X", 6))
    for number in range(1, count + 1)
]
# A9 is Restricted ImageNet and nothing else; tests/experiments/test_a9_restricted_imagenet.py builds it in miniature.
WITHOUT_SMALL_RUN = {"A9"}
# Parts of CIFAR-10, a short schedule or reduced digits: they need a download, and are not at the paper's scale.
SHORTENED = {
    "cifar10-mini",
    "not-bugs-cifar10-fast",
    "not-bugs-cifar10-night",
    "two-pathways-cross-digits",
    *(name for name in STUDIES if "-cpu" in name),
}


def sources(study: Study) -> set[str]:
    return {each.source for data in study.all_data().values() for each in data.iterate_sources()}


# A million images, and so one seed.
ONE_SEED = {"not-bugs-restricted-imagenet"}

# The papers' toy models need no data and run in full, so that one study is both.
SMALL = [name for name, study in STUDIES.items() if sources(study) <= {"digits"}]
FULL = [name for name, study in STUDIES.items() if sources(study) != {"digits"} and name not in SHORTENED]


@pytest.mark.parametrize("identifier", LISTED)
def test_every_listed_experiment_has_module_small_run_and_full_study(identifier: str) -> None:
    assert identifier in experiment_modules()
    assert load_experiment(identifier).id == identifier
    if identifier not in WITHOUT_SMALL_RUN:
        assert any(identifier in STUDIES[name].experiments for name in SMALL), "no small run"
    assert any(identifier in STUDIES[name].experiments for name in FULL), "no study at the paper's scale"


def test_nothing_else_is_in_the_catalogue() -> None:
    assert set(experiment_modules()) <= set(LISTED)


@pytest.mark.parametrize("name", ["digits-full", *(name for name in FULL if name not in ONE_SEED)])
def test_every_row_has_several_seeds(name: str) -> None:
    assert len(STUDIES[name].seeds) > 1


@pytest.mark.parametrize("name", ["digits-full", *FULL, *sorted(SHORTENED)])
def test_studies_plan(name: str) -> None:
    plan = unfold(Config(study=name), FOLDER)
    wanted = set(STUDIES[name].experiments)
    assert {part.experiment.id for view in plan.views for part in view.parts} == wanted


def test_the_page_of_results_names_the_full_studies() -> None:
    text = (REPOSITORY / "docs" / "results.md").read_text()
    shown = {
        name: tuple(ids.split(", ")) for name, ids in re.findall(r"^\| `([\w-]+)` \| (.*) \|$", text, re.MULTILINE)
    }
    assert shown == {name: tuple(STUDIES[name].experiments) for name in FULL if sources(STUDIES[name])}
