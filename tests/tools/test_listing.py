"""`list`, and artifacts by label in `show`, `why` and `gc`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robustfeatures.errors import UserError
from robustfeatures.files import write_json
from robustfeatures.pipeline.plan.view import artifacts_of
from robustfeatures.pipeline.store.references import write_batch
from robustfeatures.pipeline.store.sealed import MANIFEST
from robustfeatures.tools.finding import find_reference
from robustfeatures.tools.gc import describe_payloads
from robustfeatures.tools.listing import format_bytes, list_artifacts
from robustfeatures.tools.show import draw_curve, show
from robustfeatures.tools.why import why
from tests.tools.made import Made

# After the last attack 60 of 100 images withstand 0.25; rows with shifted labels or fewer attacks count for nothing.
ROWS = """label_shift,eps,attacks,correct,total
0,0.0,0,90,100
0,0.25,1,70,100
0,0.25,2,60,100
0,0.5,2,10,100
1,0.0,0,3,100
"""
HISTORY = """epoch,probe,network,value,loss,images
1,train,itself,0.0,1.0,10
2,train,itself,0.5,1.0,10
3,train,itself,1.0,1.0,10
"""


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """The models and data of the smoke study, and one evaluation."""
    made = Made(tmp_path)
    for recipe in made.plan.recipes.values():
        match recipe.stage.name:
            case "data":
                zarr = {f"data.zarr/{name}/images/zarr.json": json.dumps({"shape": [n, 1, 8, 8]}) for name, n in SPLITS}
                made.make(recipe, files=zarr)
            case "model":
                made.make(recipe, files={"model.safetensors": "w" * 2000, "history.csv": HISTORY})
    made.make(made.plan.recipes[made.name("evaluation/digits-adversarial-test-")], files={"rows.csv": ROWS})
    return made


SPLITS = (("test", 450), ("train", 1077))


def test_the_main_number_of_each_stage(made: Made) -> None:
    lines = {line.label: line for line in list_artifacts(made.artifacts, made.store)}
    assert lines["digits"].number == "test 450, train 1077"
    assert lines["digits-adversarial-seed0"].number == "clean 90.0 %, l2 0.25: 60.0 %"
    assert lines["digits-adversarial-test-seed0"].number == lines["digits-adversarial-seed0"].number
    assert lines["digits-standard-seed0"].number == ""
    assert lines["digits-standard-seed0"].seed == "0"
    assert lines["digits"].seed == ""
    assert lines["digits-standard-seed0"].size == 2000 + len(HISTORY)
    assert 0 <= lines["digits"].age < 600


@pytest.mark.parametrize("damage", ["removed", "truncated", "flipped"])
def test_damaged_rows_give_no_number_and_stop_nothing(made: Made, damage: str) -> None:
    evaluation, model = (made.name(f"{start}/digits-adversarial-") for start in ("evaluation", "model"))
    rows = made.store.payload(made.plan.recipes[evaluation].digest) / "rows.csv"
    harmed = {"truncated": ROWS[:-20], "flipped": ROWS.replace("0.25,2,60", "0.25,2,6x")}
    rows.write_text(harmed.get(damage, ""))
    if damage == "removed":
        rows.unlink()
    lines = {line.label: line.number for line in list_artifacts(made.artifacts, made.store)}
    assert lines["digits-adversarial-seed0"] == ""
    assert lines["digits-adversarial-test-seed0"] == ("" if damage == "flipped" else "missing or damaged")
    lines_of = [list(show(made.artifacts.reference(name), made.store)) for name in (evaluation, model)]
    assert not [line for lines in lines_of for line in lines if "%" in line]
    assert ["missing or damaged" in lines[-1] for lines in lines_of] == [True, False]


def test_what_is_gone_is_listed_without_a_size(made: Made) -> None:
    before = {line.label: line for line in list_artifacts(made.artifacts, made.store)}
    (made.store.payload(made.plan.recipes[made.name("model/digits-standard-")].digest) / MANIFEST).unlink()
    after = {line.label: line for line in list_artifacts(made.artifacts, made.store)}
    gone = "digits-standard-seed0"
    assert {label for label in after if after[label].size != before[label].size} == {gone}
    assert (after[gone].number, after[gone].size) == ("missing or damaged", 0)


def test_filters(made: Made) -> None:
    models = list_artifacts(made.artifacts, made.store, stage="model", label="D_R")
    assert {line.label for line in models} == {
        f"digits-on-D_R-{start}-downstream-seed0" for start in ("images", "noise")
    }
    names = {made.name("data/")}
    assert [line.label for line in list_artifacts(made.artifacts, made.store, names=names)] == ["digits"]
    with pytest.raises(UserError, match=r"--stage: there is no stage 'modle' \(did you mean 'model'\?\)"):
        list_artifacts(made.artifacts, made.store, stage="modle")


def test_find_by_label(made: Made) -> None:
    model = made.artifacts.reference(made.name("model/digits-standard-seed0"))
    digest = model.stem.rpartition("-")[2]
    for given in ("digits-standard", "digits-standard-seed0", "model/digits-standard", model.stem[:-6], str(model)):
        assert find_reference(given, made.artifacts) == model, given
    other = model.with_name(f"digits-standard-seed0-{'0' * 16}.json")
    other.write_text(model.read_text())
    with pytest.raises(UserError) as caught:
        find_reference("digits-standard", made.artifacts)
    assert f"2 artifacts have this label: model/{other.stem}, model/digits-standard-seed0-{digest};" in str(
        caught.value
    )
    assert find_reference(f"digits-standard-seed0-{digest[:4]}", made.artifacts) == model
    # The one that a study names is taken. A study of other names leaves it open.
    assert find_reference("digits-standard", made.artifacts, lambda: made.plan.recipes) == model
    with pytest.raises(UserError, match="2 artifacts have this label"):
        find_reference("digits-standard", made.artifacts, lambda: {"data/digits"})
    # If the person names the study, no other will do, be there one build or two.
    assert find_reference("digits-standard", made.artifacts, lambda: made.plan.recipes, "smoke") == model
    other.unlink()
    with pytest.raises(
        UserError, match="digits-standard: the study theory, as it is now, has not built it; there are other builds"
    ):
        find_reference("digits-standard", made.artifacts, lambda: {"data/digits"}, "theory")
    # The name of a training may look like that of a batch.
    alike = model.with_name(f"digits-two-seeds-each-seed0-{'2' * 16}.json")
    alike.write_text(model.read_text())
    assert find_reference("digits-two-seeds-each", made.artifacts) == alike
    alike.unlink()
    # So may the name of a study, and with it that of its page.
    page = made.artifacts.root / "report" / f"smoke-2-seeds-{'3' * 16}.json"
    page.parent.mkdir(exist_ok=True)
    page.write_text("{}")
    assert find_reference("report/smoke-2-seeds", made.artifacts) == page
    page.unlink()
    # And that of a data set.
    data = made.artifacts.root / "data" / f"mix-2-seeds-{'4' * 16}.json"
    data.write_text(model.read_text())
    assert find_reference("mix-2-seeds", made.artifacts) == data
    data.unlink()
    # A batch of seeds has a file too, which is no artifact.
    batch = model.with_name(f"digits-standard-8-seeds-{'1' * 16}.json")
    write_batch(batch, [f"model/{model.stem}"])
    with pytest.raises(UserError, match="there is no artifact with this label"):
        find_reference("digits-standard-8-seeds", made.artifacts)
    with pytest.raises(UserError, match=r"^--study: .*\.json is a path, which names one build; leave --study out$"):
        find_reference(str(model), made.artifacts, lambda: made.plan.recipes, "smoke")
    with pytest.raises(UserError, match=r"\(did you mean 'digits-standard-seed0'\?\)"):
        find_reference("digits-stndard-seed0", made.artifacts)
    with pytest.raises(
        UserError, match="labels that contain it: digits-on-D_rand-downstream-seed0, digits-on-D_rand-rob"
    ):
        find_reference("on-D_rand", made.artifacts)
    with pytest.raises(UserError, match=r"there is no stage 'modle' \(did you mean 'model'\?\)"):
        find_reference("modle/digits-standard", made.artifacts)


def test_show_prints_the_accuracies_and_curves_of_a_model(made: Made) -> None:
    path = made.artifacts.reference(made.name("model/digits-adversarial-seed0"))
    lines = list(show(path, made.store))
    assert "  digits test, clean: 90.00 %" in lines
    assert "  digits test, l2 eps 0.5: 10.00 %" in lines
    assert not any("▁" in line for line in lines)
    assert "  ▁▅█ train, 0.000 to 1.000" in list(show(path, made.store, curves=True))
    assert draw_curve([2.0, 2.0]) == "▁▁"


def test_gc_names_what_it_removes(made: Made) -> None:
    data, model = (made.plan.recipes[made.name(start)] for start in ("data/", "model/digits-standard-"))
    made.artifacts.reference(data.name).unlink()
    described, total = describe_payloads([data.digest, model.digest], made.artifacts, made.store)
    assert described[model.digest].startswith(f"{model.name}, 2 kB, ")
    assert described[data.digest].startswith("a payload of the stage data, 0 kB, ")
    assert total == "2 payloads, 2 kB in all"


@pytest.mark.parametrize(("size", "text"), [(999, "1 kB"), (2.5e6, "2.5 MB"), (1.2e9, "1.2 GB")])
def test_bytes(size: float, text: str) -> None:
    assert format_bytes(size) == text


def test_a_page_is_made_from_what_its_tables_figures_and_claims_show(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for name, recipe in made.plan.recipes.items():
        write_json(made.artifacts.plan(name), recipe.record())
    for view in made.plan.views:
        write_json(made.artifacts.plan(view.artifact), view.record)
        write_json(made.artifacts.reference(view.artifact), {"files": {}, "recipe": view.record})
    (page,) = (view for view in made.plan.views if view.kind == "report")
    shown = {need for view in made.plan.views for part in view.record["parts"] for need in artifacts_of([part])}
    assert shown
    path = made.artifacts.reference(page.artifact)
    told = list(show(path, made.store))
    assert {line.strip() for line in told[told.index("made from") + 1 :]} == shown
    assert {line.removesuffix(" (as above)").strip() for line in why(path)} == set(made.plan.recipes)
