"""What `status` says of a study that is partly there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from rich.console import Console

from robustfeatures.files import write_json
from robustfeatures.pipeline.plan.estimates import estimate
from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.status import State, draw, find_state, format_duration
from tests.tools.made import Made


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def printed(state: State, *, every: bool = False) -> str:
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(draw(state, every=every))
    return console.export_text()


def test_counts_by_stage(made: Made) -> None:
    for recipe in made.plan.recipes.values():
        if recipe.stage.name in ("data", "model"):
            made.make(recipe)
    state = find_state(made.plan, made.artifacts, made.store)
    count = {stage: sum(name.startswith(f"{stage}/") for name in made.plan.recipes) for stage in ("model", "derived")}
    assert state.counts["model"] == (count["model"], count["model"])
    assert state.counts["derived"] == (0, count["derived"])
    assert list(state.counts)[:4] == ["data", "model", "derived", "evaluation"]
    assert len(state.missing) == sum(of - there for there, of in state.counts.values())
    text = printed(state)
    assert re.search(rf"derived +0 of {count['derived']}\n", text)
    assert "lacks" not in text
    assert printed(state, every=True).count("lacks ") == len(state.missing)


def test_payloads_in_another_store_are_told(made: Made, tmp_path: Path) -> None:
    recipe = next(iter(made.plan.recipes.values()))
    made.make(recipe)
    assert find_state(made.plan, made.artifacts, made.store).lost == 0
    other = find_state(made.plan, made.artifacts, Store(tmp_path / "other"))
    assert f"\n1 were made, but are not in the store {tmp_path / 'other'}; --store names another" in printed(other)


def test_time_left_follows_what_finished_jobs_took(made: Made) -> None:
    """The same estimates, with finished jobs that took three times as long: three times as much is left."""
    assert find_state(made.plan, made.artifacts, made.store).seconds_left is None
    first, *others = [recipe for recipe in made.plan.recipes.values() if recipe.stage.name == "evaluation"]
    for recipe in made.plan.recipes.values():
        if recipe.stage.name != "evaluation":
            made.make(recipe)
    left = []
    for seconds in (20.0, 60.0):
        made.make(first, seconds)
        state = find_state(made.plan, made.artifacts, made.store)
        assert state.seconds_left is not None
        left.append(state.seconds_left)
    assert left[1] == pytest.approx(3 * left[0])
    for recipe in others:
        made.make(recipe, 60.0)
    after = find_state(made.plan, made.artifacts, made.store).seconds_left
    assert after is not None
    assert after < left[1]
    for recipe in made.plan.recipes.values():
        made.make(recipe, 60.0)
    assert find_state(made.plan, made.artifacts, made.store).seconds_left == 0


def test_a_stage_without_a_finished_job_takes_what_is_estimated(made: Made) -> None:
    """However quickly the data were read."""
    (data,) = [recipe for recipe in made.plan.recipes.values() if recipe.stage.name == "data"]
    others = [recipe for recipe in made.plan.recipes.values() if recipe is not data]
    for seconds in (1.0, 60.0):
        made.make(data, seconds)
        expected = sum(estimate(recipe).seconds(gpu=False, threads=1, parts=1) for recipe in others)
        assert find_state(made.plan, made.artifacts, made.store).seconds_left == pytest.approx(expected)


def test_a_job_of_several_tries_took_all_of_them(made: Made) -> None:
    *others, last = [recipe for recipe in made.plan.recipes.values() if recipe.stage.name == "evaluation"]
    left = []
    for computing in (5.0, 100.0):
        for recipe in made.plan.recipes.values():
            if recipe is not last:
                made.make(recipe, 10.0, computing=computing)
        left.append(find_state(made.plan, made.artifacts, made.store).seconds_left)
    assert left[0] is not None
    assert left[1] == pytest.approx(10 * left[0])
    assert others


def test_a_job_at_work_has_a_bar_and_knows_its_time(made: Made) -> None:
    for recipe in made.plan.recipes.values():
        if not recipe.name.startswith("model/digits-standard-"):
            made.make(recipe)
    (missing,) = [recipe for recipe in made.plan.recipes.values() if recipe.name.startswith("model/digits-standard-")]
    with made.store.lease("held"):
        report = {"stage": "model", "label": missing.label, "share": 0.25, "seconds_left": 90.0, "process": 1}
        write_json(made.store.scratch("held") / "progress.json", report)
        state = find_state(made.plan, made.artifacts, made.store)
    assert state.seconds_left == 90.0
    (line,) = [line for line in printed(state).splitlines() if missing.label in line]
    assert "25 %" in line
    assert line.count("━") >= 4
    assert "90 s left" in line
    assert "time left: about 90 s with one job at once" in printed(state)


def test_a_complete_study_is_one_line(made: Made) -> None:
    for recipe in made.plan.recipes.values():
        made.make(recipe)
    made.make_views("table", "figure", "claims", "report")
    total = len(made.plan.recipes) + len(made.plan.views)
    assert (
        printed(find_state(made.plan, made.artifacts, made.store)).strip() == f"{total} of {total} artifacts are there"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(9.6, "10 s"), (119, "119 s"), (600, "10 min"), (9000, "2.5 h"), (259200, "3.0 days")]
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
