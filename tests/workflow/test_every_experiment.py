"""Every experiment on images, from raw ones to table, figure and claims: the full digits study, cut down to seconds.

The toy models, which need no images, have tests of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from robustfeatures.experiments.shared import resampling
from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.report.views.claims import UNLEARNED
from robustfeatures.pipeline.study.extends import read_values
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.conftest import REPOSITORY
from tests.in_process import built_study

pytestmark = pytest.mark.slow

STUDIES = REPOSITORY / "workflow" / "studies"
# With one seed few claims are tested, but each has a value.
SEEDS = 1
# The experiments with a claim that reads evaluations alone: with one seed it is judged over the test images.
ON_EVALUATIONS = {
    *("A1", "A2", "A4", "A5", "A7", "A8", "A11"),
    *("B1", "B2", "B3", "B5", "C1", "C2", "C3", "D3", "X2", "X3"),
}
TEST_IMAGES = {"kind": "subset", "split": "test", "samples": 120}
# Each interval over images takes so many here. The project takes 1000.
RESAMPLES = 100
# Of the fields that cost time, the largest value that is left.
MOST = {"epochs": 4, "steps": 2, "restarts": 2, "queries": 5}
# Of AutoAttack the part whose length a study may set; of the others steps of which two reach the surface of the ball.
QUICK: dict[Any, Any] = {
    "autoattack": {"parts": ["square"]},
    "pgd": {"relative_step_sizes": [0.5]},
    "targeted-attack": {"step_size": 0.6},
}


def shrunk(value: Any, name: str = "") -> Any:
    """The same study with few epochs and steps; what an experiment sets by other names it must keep small itself."""
    if isinstance(value, dict):
        value = {**value, **QUICK.get(value.get("kind"), {})}
        return {key: shrunk(item, key) for key, item in value.items()}
    if name == "seeds":
        return value[:SEEDS]
    if name == "milestones":
        return [1]
    if isinstance(value, list):
        if name in MOST:
            return [item for item in value if item <= MOST[name]]
        return [shrunk(item) for item in value]
    return min(value, MOST[name]) if name in MOST else value


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Path]:
    """The plan, and the results folder in which all of it is built."""
    study = shrunk(read_values(STUDIES / "digits-full.yaml").values)
    for data in (study["data"], *study["other_data"].values()):
        if not any(each["kind"] == "subset" for each in data.get("operations", [])):
            data["operations"] = [TEST_IMAGES, *data.get("operations", [])]
    toys = read_yaml(STUDIES / "theory.yaml")["experiments"]
    study["experiments"]["E4"]["relative_step_size"] = 0.5
    study["experiments"] = {name: settings for name, settings in study["experiments"].items() if name not in toys}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resampling, "RESAMPLES", RESAMPLES)
        return built_study(tmp_path_factory.mktemp("full"), study)


def test_every_view_is_written(built: tuple[Plan, Path]) -> None:
    plan, results = built
    outputs = [results.parent / name for view in plan.views for name in view.outputs]
    assert outputs
    assert [path.name for path in outputs if not path.stat().st_size] == []


def test_every_claim_has_a_value(built: tuple[Plan, Path]) -> None:
    plan, results = built
    claims = pd.read_csv(results / "claims.csv")
    (view,) = (view for view in plan.views if view.kind == "claims")
    assert set(claims["experiment"]) == {part.experiment.id for part in view.parts}
    judged = claims[claims["verdict"] != "not tested"]
    assert set(judged["interval"]) == {"one network"}
    assert set(judged["experiment"]) == ON_EVALUATIONS
    # In so few epochs no curve of B1 has turned, B3 has no transition, B4 no overfitting and D4 no success.
    reasons = {
        "B1": "no value if a later turn could change the verdict",
        "B3": "; not tested: in a seed the two do not cross",
        "B4": "; not tested: train minus validation is ",
        "D4": "; not tested: NRF-PGD has ",
    }
    lacking = claims[claims["value"].isna()]
    lacking = lacking[~lacking["quantity"].str.endswith(UNLEARNED)]
    assert set(lacking["experiment"]) <= reasons.keys()
    for experiment, quantity in zip(lacking["experiment"], lacking["quantity"], strict=True):
        assert reasons[experiment] in quantity


def test_every_table_has_a_row_for_what_was_measured(built: tuple[Plan, Path]) -> None:
    plan, results = built
    for view in plan.views:
        if view.kind == "table":
            table = pd.read_csv(results / "tables" / f"{view.parts[0].experiment.id}.csv")
            assert len(table), view.label
