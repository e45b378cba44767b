"""Named pieces of a study: other data sets, networks and trainings, and fields that may be missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from robustfeatures.attacks.evaluating.settings import Evaluation
from robustfeatures.data.settings import Data, KeepClasses, Subset
from robustfeatures.errors import UserError
from robustfeatures.models.settings import Architecture
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.plan import Plan, unfold
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.study import Study, read_study
from tests.conftest import REPOSITORY

SMOKE = REPOSITORY / "workflow" / "studies" / "smoke.yaml"


@pytest.fixture
def study() -> Study:
    return read_study(SMOKE)


def test_another_architecture_makes_another_artifact(study: Study) -> None:
    wider = Pieces(replace(study, other_architectures={"wide": Architecture(name="small-cnn", width=32)}))
    own = wider.downstream_model("D_det", 0)
    assert own.digest == Pieces(study).downstream_model("D_det", 0).digest
    wide = wider.downstream_model("D_det", 0, architecture="wide")
    assert wide.digest != own.digest
    assert wide.inputs["data"] is own.inputs["data"]


def test_the_order_of_splits_is_no_other_set(study: Study) -> None:
    derived = study.derived["D_det"]
    one, other = (
        Pieces(replace(study, derived={"D_det": replace(derived, splits=splits)})).derived("D_det", 0)
        for splits in (("train", "validation"), ("validation", "train"))
    )
    assert one.digest == other.digest


def test_other_data_carry_through(study: Study) -> None:
    pieces = Pieces(replace(study, other_data={"halves": Data(source="digits", validation=0.25, test=0.5)}))
    model = pieces.downstream_model("D_det", 0, data="halves")
    assert model.inputs["data"].inputs["data"] is pieces.data("halves")
    assert model.inputs["data"].inputs["source"].inputs["data"] is pieces.data("halves")
    assert pieces.evaluation(model, eps=(0.0,)).inputs["data"] is pieces.data()


def test_a_target_that_is_no_class_is_refused_before_anything_is_computed(study: Study) -> None:
    def pieces(target: int) -> Pieces:
        derived = study.derived["D_rand"]
        method = replace(derived.method, target=target)  # type: ignore[call-arg]
        halves = Data(source="digits", test=0.5, operations=(KeepClasses(kind="classes", keep=("1", "7")),))
        return Pieces(replace(study, derived={"D_rand": replace(derived, method=method)}, other_data={"two": halves}))

    assert pieces(9).derived("D_rand", 0)
    for target, data, said in (
        (10, "D", "data; the last one is 9"),
        (2, "two", r"other_data\.two; the last one is 1"),
    ):
        with pytest.raises(UserError, match=rf"^derived\.D_rand\.method\.target: {target} is no class of {said}"):
            pieces(target).derived("D_rand", 0, data=data)


def test_a_training_may_follow_from_a_named_one(study: Study) -> None:
    pieces = Pieces(study)
    plain = pieces.training("standard")
    data = {"data": pieces.data()}
    assert pieces.model("m", plain, 0, data).digest == pieces.model("m", "standard", 0, data).digest
    longer = pieces.model("m", replace(plain, epochs=plain.epochs + 1), 0, data)
    assert longer.digest != pieces.model("m", "standard", 0, data).digest


def test_data_are_narrowed_after_their_own_operations(study: Study) -> None:
    fewer, fewest = (Subset(kind="subset", split="train", samples=samples) for samples in (100, 10))
    half = Data(source="digits", test=0.5, operations=(fewer,))
    pieces = Pieces(replace(study, other_data={"half": half}))
    assert pieces.data_with("few", [fewest], data="half").parameters == replace(half, operations=(fewer, fewest))
    assert pieces.data_with("few", [fewest]).digest != pieces.data().digest


def test_an_evaluation_in_another_norm(study: Study) -> None:
    pieces = Pieces(study)
    model = pieces.source_model("standard", 0)
    own, same = pieces.evaluation(model, eps=(0.1,)), pieces.evaluation(model, eps=(0.1,), norm="l2")
    other = pieces.evaluation(model, eps=(0.1,), norm="linf")
    assert own.digest == same.digest
    assert isinstance(own.parameters, Evaluation)
    assert other.parameters == replace(own.parameters, norm="linf")
    assert other.label != own.label


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda pieces: pieces.data("half"), r"^other_data: 'half' is missing"),
        (lambda pieces: pieces.source_model("standrad", 0), r"^training: 'standrad' .*did you mean 'standard'"),
        (lambda pieces: pieces.derived("D", 0), r"^derived: 'D' is missing"),
        (lambda pieces: pieces.architecture("wide"), r"^other_architectures: 'wide' is missing"),
    ],
)
def test_an_unknown_name_is_told(study: Study, asked: object, message: str) -> None:
    assert callable(asked)
    with pytest.raises(UserError, match=message):
        asked(Pieces(study))


@pytest.mark.parametrize("field", ["data", "architecture", "robustness"])
def test_a_study_of_theory_has_no_data_and_says_so_when_asked(field: str) -> None:
    pieces = Pieces(Study(title="theory", seeds=(0,), experiments={}))
    with pytest.raises(UserError, match=f"^{field}: the field is missing"):
        _ = pieces.robustness if field == "robustness" else getattr(pieces, field)(*([None] * (field != "data")))


def test_compile_reaches_what_trains_derives_and_attacks(study: Study) -> None:
    for compile in (False, True):
        pieces = Pieces(replace(study, compile=compile))
        model = pieces.downstream_model("D_det", 0)
        made = (model, model.inputs["data"], pieces.evaluation(model, eps=(0.1,)))
        assert [recipe.parameters.compile for recipe in made] == [compile] * 3  # type: ignore[union-attr]
    assert model.digest != Pieces(study).downstream_model("D_det", 0).digest


def test_nothing_is_compiled_unless_a_study_asks_for_it(study: Study) -> None:
    assert study.compile is False


def seeds_of(plan: Plan, identifier: str) -> set[int]:
    return {
        need.seed
        for view in plan.views
        for part in view.parts
        for need in part.needs
        if part.experiment.id == identifier
    }


def test_an_experiment_may_use_some_of_the_studys_seeds(tmp_path: Path) -> None:
    (tmp_path / "smoke.yaml").write_text(SMOKE.read_text())
    changes = {
        "seeds": [3, 5, 7],
        "experiments": {"A1": {"seeds": [5]}, "A10": {"seeds": [7, 5], "images": 3}, "X4": {}, "B1": None},
    }
    (tmp_path / "narrow.yaml").write_text(yaml.safe_dump({"extends": "smoke", **changes}))
    plan = unfold(Config(study="narrow"), tmp_path)
    assert {name: seeds_of(plan, name) for name in ("A1", "A2", "A7")} == {"A1": {5}, "A2": {3, 5, 7}, "A7": {3, 5, 7}}
    # Sample grids show one seed: the first in the order of the study.
    assert seeds_of(plan, "A10") == {5}
    # X4 shows the rows of A1 and A2, and asks for no seed that they do not have.
    needs = [need for view in plan.views for part in view.parts for need in part.needs if part.experiment.id == "X4"]
    found = {row: {need.seed for need in needs if need.row == row} for row in {need.row for need in needs}}
    assert found["adversarial"] == found["D_R-images"] == {5}
    assert found["D_det"] == {3, 5, 7}
    # What only A1 needs is made once, with the recipe that all seeds would have had.
    inverted = [name for name in plan.recipes if name.startswith("derived/") and "D_R-noise" in name]
    del changes["experiments"]["A1"]["seeds"]  # type: ignore[index]
    (tmp_path / "wide.yaml").write_text(yaml.safe_dump({"extends": "smoke", **changes}))
    assert len(inverted) == 1
    assert set(inverted) < set(unfold(Config(study="wide"), tmp_path).recipes)


@pytest.mark.parametrize("seeds", [[], 0, [0, 9], [0, 0], "0"])
def test_seeds_that_the_study_does_not_have_are_refused(seeds: object, tmp_path: Path) -> None:
    (tmp_path / "smoke.yaml").write_text(SMOKE.read_text())
    (tmp_path / "narrow.yaml").write_text(yaml.safe_dump({"extends": "smoke", "experiments": {"A2": {"seeds": seeds}}}))
    with pytest.raises(UserError) as refusal:
        unfold(Config(study="narrow"), tmp_path)
    message = f"narrow.yaml: experiments.A2.seeds: {seeds} is no list of some of the seeds [0]"
    assert str(refusal.value) == f"{tmp_path}/{message}"


def test_sample_grids_leave_out_sets_that_they_would_take_for_inversions_of_noise(tmp_path: Path) -> None:
    (tmp_path / "smoke.yaml").write_text(SMOKE.read_text())
    untargeted = {"kind": "untargeted-attack", "norm": "l2", "eps": 0.9, "step_size": 0.3, "steps": 5}
    moved = {"source": "standard", "training": "downstream", "method": untargeted}
    (tmp_path / "moved.yaml").write_text(yaml.safe_dump({"extends": "smoke", "derived": {"moved": moved}}))
    (rows,) = [
        [need.row for need in part.needs]
        for view in unfold(Config(study="moved"), tmp_path).views
        for part in view.parts
        if view.kind == "figure" and part.experiment.id == "A10"
    ]
    assert "moved" not in rows
    assert {"D", "D_R-noise", "D_rand", "D_det-robust"} <= set(rows)
