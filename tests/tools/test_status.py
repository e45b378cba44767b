"""What `status` says of a study that is partly there."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from robustfeatures.files import write_json
from robustfeatures.pipeline.plan.estimates import estimate
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.plan.tasks import make_tasks, write_tasks
from robustfeatures.pipeline.store.references import find_key, write_part
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.config import Config
from robustfeatures.tools.status import State, draw, find_state, format_duration
from robustfeatures.training.settings import Model, Probe
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
    assert state.computing == {"data": 5.0, "model": 5.0 * count["model"]}
    assert len(state.missing) == sum(of - there for there, of in state.counts.values())
    text = printed(state)
    assert re.search(rf"derived +0 of {count['derived']}\n", text)
    assert f"\ncomputing until now: {5 + 5 * count['model']} s (data 5 s, model {5 * count['model']} s)\n" in text
    assert "lacks" not in text
    assert printed(state, every=True).count("lacks ") == len(state.missing)


def test_payloads_in_another_store_are_told(made: Made, tmp_path: Path) -> None:
    recipe = next(iter(made.plan.recipes.values()))
    made.make(recipe)
    assert find_state(made.plan, made.artifacts, made.store).lost == 0
    other = find_state(made.plan, made.artifacts, Store(tmp_path / "other"))
    assert (
        f"\nthe store {tmp_path / 'other'} lacks 1 artifact that had been made; --store names another store"
        in printed(other)
    )


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
        state = find_state(made.plan, made.artifacts, made.store)
        assert state.seconds_left == pytest.approx(expected)
        assert "time left: at most about " in printed(state)
        assert "once a job of each stage has finished" in printed(state)


def test_a_stage_without_a_finished_job_is_as_fast_as_the_others(made: Made) -> None:
    """Networks that take a tenth of what is asked for them: so do all other artifacts, but for reading data."""
    (data,) = [recipe for recipe in made.plan.recipes.values() if recipe.stage.name == "data"]
    models = [recipe for recipe in made.plan.recipes.values() if recipe.stage.name == "model"]
    asked = {
        name: estimate(recipe).seconds(gpu=False, threads=1, parts=1) for name, recipe in made.plan.recipes.items()
    }
    for recipe in models:
        made.make(recipe, asked[recipe.name] / 10)
    state = find_state(made.plan, made.artifacts, made.store)
    others = sum(seconds for name, seconds in asked.items() if name not in {data.name, *(each.name for each in models)})
    assert state.seconds_left == pytest.approx(asked[data.name] + others / 10)
    assert "time left: roughly " in printed(state)
    assert "once a job of each stage has finished" in printed(state)
    # Reading says nothing of computing.
    made.make(data, 1.0)
    assert find_state(made.plan, made.artifacts, made.store).seconds_left == pytest.approx(others / 10)
    # Two stages together: long jobs count for more.
    (derived, *_) = [recipe for recipe in made.plan.recipes.values() if recipe.stage.name == "derived"]
    made.make(derived, asked[derived.name])
    of_models, of_derived = sum(asked[each.name] for each in models), asked[derived.name]
    pace = (of_models / 10 + of_derived) / (of_models + of_derived)
    lacking = {
        name: seconds for name, seconds in asked.items() if name.startswith(("derived", "evaluation", "measure"))
    }
    sets = sum(seconds for name, seconds in lacking.items() if name.startswith("derived") and name != derived.name)
    rest = sum(seconds for name, seconds in lacking.items() if not name.startswith("derived"))
    assert find_state(made.plan, made.artifacts, made.store).seconds_left == pytest.approx(sets + rest * pace)


def test_a_quick_measurement_says_nothing_of_trainings(made: Made) -> None:
    """Its request is the same for every network."""
    recipe = next(
        each for each in made.plan.recipes.values() if estimate(each).operations == 0 and each.stage.name != "data"
    )
    made.make(recipe, 1.0)
    state = find_state(made.plan, made.artifacts, made.store)
    others = [each for each in made.plan.recipes.values() if each.stage.name in ("model", "derived", "evaluation")]
    assert state.seconds_left is not None
    assert state.seconds_left >= sum(estimate(each).seconds(gpu=False, threads=1, parts=1) for each in others)
    assert "time left: at most about " in printed(state)


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


def made_but(made: Made, start: str) -> tuple[Recipe, str]:
    """Make all but one artifact of the plan; its recipe, and the key of its payload."""
    missing = made.plan.recipes[made.name(start)]
    for recipe in made.plan.recipes.values():
        if recipe is not missing:
            made.make(recipe)
    key = find_key(made.artifacts, missing.record())
    assert key is not None
    return missing, key


def report(
    made: Made, key: str, recipe: Recipe, left: float | None, name: str = "progress", share: float = 0.25
) -> None:
    """What a job says of itself."""
    told = {"stage": recipe.stage.name, "label": recipe.label, "share": share, "seconds_left": left, "process": 1}
    write_json(made.store.scratch(key) / f"{name}.json", told)


def test_a_job_at_work_has_a_bar_and_knows_its_time(made: Made) -> None:
    missing, key = made_but(made, "model/digits-standard-")
    with made.store.lease(key):
        report(made, key, missing, 90.0)
        state = find_state(made.plan, made.artifacts, made.store)
    assert state.seconds_left == 90.0
    (line,) = [line for line in printed(state).splitlines() if missing.label in line]
    assert "25 %" in line
    assert line.count("━") >= 4
    assert "90 s left" in line
    assert "time left: about 90 s with one job at once" in printed(state)


@pytest.mark.parametrize("in_batch", [False, True])
def test_parts_of_one_artifact_take_their_times_together(made: Made, in_batch: bool) -> None:
    missing, key = made_but(made, "evaluation/digits-adversarial-test-")
    name = "evaluation/digits-adversarial-test-2-seeds-0" if in_batch else missing.name
    if in_batch:
        (task,) = [one for one in make_tasks(made.plan, Config(study="smoke"), gpus=0) if one.name == missing.name]
        write_tasks(made.artifacts, [replace(task, name=name, artifacts=(missing.name, "another"))])
    whole = find_state(made.plan, made.artifacts, made.store).seconds_left
    assert whole is not None
    with made.store.lease(key, "a block"):
        for part in range(1, 5):
            report(made, key, missing, 100.0, f"progress-{part}-of-4")
        state = find_state(made.plan, made.artifacts, made.store)
        assert (state.seconds_left, state.at_once) == (400.0, 4)
        assert "time left: about 100 s with 4 jobs at once" in printed(state)
        # The second part is finished, the third has not begun, and the fourth does not know its rate.
        for part in (2, 3):
            (made.store.scratch(key) / f"progress-{part}-of-4.json").unlink()
        report(made, key, missing, None, "progress-4-of-4", share=0.5)
        write_part(made.artifacts.parts(name, 4)[1], {key: []})
        state = find_state(made.plan, made.artifacts, made.store)
    assert state.seconds_left == pytest.approx(100 + whole / 4 + whole / 8)
    assert state.at_once == 2


def test_jobs_of_another_study_do_not_shorten_the_time(made: Made) -> None:
    """Not even one with the same label."""
    missing, _ = made_but(made, "model/digits-standard-")
    before = find_state(made.plan, made.artifacts, made.store)
    with made.store.lease("theirs"), made.store.lease("others"):
        report(made, "theirs", missing, 5.0)
        report(made, "others", missing, 5.0)
        state = find_state(made.plan, made.artifacts, made.store)
    assert len(state.running) == 2
    assert (state.seconds_left, state.at_once) == (before.seconds_left, 0)
    assert "with one job at once" in printed(state)


def test_a_payload_with_two_names_takes_its_time_once(made: Made) -> None:
    missing, _ = made_but(made, "model/digits-standard-")
    twin = replace(missing, family="digits-twin")
    plan = replace(made.plan, recipes={**made.plan.recipes, twin.name: twin})
    once, twice = (find_state(each, made.artifacts, made.store).seconds_left for each in (made.plan, plan))
    assert twice == once


def test_a_network_that_will_be_copied_takes_no_time(made: Made) -> None:
    missing, _ = made_but(made, "model/digits-standard-")
    assert isinstance(missing.parameters, Model)
    probe = Probe(name="train", input="data", split="train")
    probed = replace(missing, family="digits-probed", parameters=replace(missing.parameters, probes=(probe,)))
    plan = replace(made.plan, recipes={**made.plan.recipes, probed.name: probed})
    alone, both = (find_state(each, made.artifacts, made.store).seconds_left for each in (made.plan, plan))
    assert alone is not None
    network, measured = (estimate(each).seconds(gpu=False, threads=1, parts=1) for each in (missing, probed))
    assert both == pytest.approx(alone * measured / network)


def test_a_complete_study_has_nothing_left(made: Made) -> None:
    for recipe in made.plan.recipes.values():
        made.make(recipe)
    made.make_views("table", "figure", "claims", "report")
    total = len(made.plan.recipes) + len(made.plan.views)
    there, computing = printed(find_state(made.plan, made.artifacts, made.store)).strip().splitlines()
    assert there == f"study smoke: {total} of {total} artifacts are there"
    # Five seconds each.
    assert computing.startswith(f"computing until now: {format_duration(5 * len(made.plan.recipes))} (data 5 s, model ")
    (claims,) = [view for view in made.plan.views if view.kind == "claims"]
    (made.artifacts.root.parent / claims.outputs[0]).write_text("")
    assert find_state(made.plan, made.artifacts, made.store).missing == [claims.artifact]


@pytest.mark.parametrize(
    ("seconds", "text"), [(9.6, "10 s"), (119, "119 s"), (600, "10 min"), (9000, "2.5 h"), (259200, "3.0 days")]
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
