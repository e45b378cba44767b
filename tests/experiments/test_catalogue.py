"""Every experiment of the list has a module, a small run and a study at the paper's scale that plans."""

from __future__ import annotations

import pytest

from robustfeatures.experiments.catalogue import experiment, experiment_modules
from robustfeatures.recipes.config import Config
from robustfeatures.recipes.plan import unfold
from robustfeatures.recipes.study import read_study
from tests.conftest import REPOSITORY

STUDIES = REPOSITORY / "workflow" / "studies"

LISTED = [
    f"{letter}{number}"
    for letter, count in (("A", 13), ("B", 7), ("C", 8), ("D", 4), ("E", 4), ("X", 5))
    for number in range(1, count + 1)
]
# A9 is A1 on Restricted ImageNet, a study and no module. X4, several seeds of every row, is how every study is made.
ELSEWHERE = {"A9", "X4"}
# The toy models run at the papers' own size, so that one study is both.
SMALL = ("digits-full", "theory")
NOT_FULL = ("digits", "digits-full", "smoke", "cifar10-mini")
FULL = sorted(path.stem for path in STUDIES.glob("*.yaml") if path.stem not in NOT_FULL)


@pytest.fixture(scope="module")
def ids() -> dict[str, set[str]]:
    """The experiments of each study that is there."""
    return {path.stem: set(read_study(path).experiments) for path in STUDIES.glob("*.yaml")}


@pytest.mark.parametrize("identifier", [each for each in LISTED if each not in ELSEWHERE])
def test_every_listed_experiment_has_module_small_run_and_full_study(identifier: str, ids: dict[str, set[str]]) -> None:
    assert identifier in experiment_modules()
    assert experiment(identifier).id == identifier
    assert any(identifier in ids.get(study, ()) for study in SMALL), f"{identifier}: no small run"
    assert any(identifier in ids[study] for study in FULL), f"{identifier}: no study at the paper's scale"


def test_restricted_imagenet_has_its_study(ids: dict[str, set[str]]) -> None:
    assert "A1" in ids["not-bugs-restricted-imagenet"]


@pytest.mark.parametrize("study", ["digits-full", *(name for name in FULL if not name.endswith("-fast"))])
def test_every_row_has_several_seeds(study: str) -> None:
    assert len(read_study(STUDIES / f"{study}.yaml").seeds) > 1


@pytest.mark.parametrize("study", [*SMALL, *(name for name in FULL if name not in SMALL)])
def test_studies_plan(study: str) -> None:
    plan = unfold(Config(study=study), STUDIES)
    assert {view.kind for view in plan.views} >= {"claims", "report"}
    assert plan.recipes
