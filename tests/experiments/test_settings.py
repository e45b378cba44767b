"""What the settings of experiments accept, and which pieces of a study they choose."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from robustfeatures.derived.settings import Misclassified
from robustfeatures.errors import UserError
from robustfeatures.experiments import a2_random_and_deterministic_targets as a2
from robustfeatures.experiments import a10_sample_grids as a10
from robustfeatures.experiments import c1_training_set_size as c1
from robustfeatures.experiments import c8_robustness_at_odds as c8
from robustfeatures.experiments import e1_feature_averaging as e1
from robustfeatures.experiments import e2_robust_radius as e2
from robustfeatures.experiments import x3_autoattack as x3
from robustfeatures.experiments import x4_intervals as x4
from robustfeatures.experiments.catalogue import load_experiment
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.study import Study, read_study
from robustfeatures.pipeline.study.validation import validate
from tests.conftest import REPOSITORY


@pytest.fixture
def study() -> Study:
    return read_study(REPOSITORY / "workflow" / "studies" / "digits-full.yaml")


def test_an_experiment_has_a_table_or_a_figure() -> None:
    with pytest.raises(UserError, match=r"^A1: the experiment has neither a table nor a figure; give it one$"):
        replace(load_experiment("A1"), table=None, figure=None)


@pytest.mark.parametrize(
    ("identifier", "settings", "expected"),
    [
        ("A1", {"starts": ["noise", "noise"]}, "starts: 'noise' appears twice"),
        ("A3", {"architectures": ["linear", "linear", "wide-cnn"]}, "architectures: 'linear' appears twice"),
        ("A5", {"steps": [1, 10, 100, 10]}, "steps: 10 appears twice"),
        ("A5", {"reach": [0.5, 2]}, "reach.0: "),
        ("A8", {"fresh": {"split": "test"}, "fitted": ["linear", "linear"]}, "fitted: 'linear' appears twice"),
        ("A11", {"architectures": ["linear", "linear"]}, "architectures: 'linear' appears twice"),
        ("A12", {"relative_eps": [0.1, 0.1]}, "relative_eps: 0.1 appears twice"),
        ("B6", {"p": [0.1, 0.1]}, "p: 0.1 appears twice"),
        ("C2", {"eps": {"l2": [0.5, 0.5]}}, "eps.l2: 0.5 appears twice"),
        (
            "C7",
            {"data": "two", "architecture": "linear", "training": "linear", "eps": 0.2, "fractions": [0.5, 0.5]},
            "fractions: 0.5 appears twice",
        ),
        ("C8", {"limits": [0.0, 0.0]}, "limits: 0.0 appears twice"),
        ("D4", {"eps": 0.1, "pairs": [["0", "1"], ["0", "1"]]}, "pairs: ('0', '1') appears twice"),
        ("E4", {"steps": 2, "tasks": {"t": {"merged": "t", "eps": [0.1, 0.1]}}}, "tasks.t.eps: 0.1 appears twice"),
        ("B6", {"curve_k": [2.0, 2.0]}, "curve_k: 2.0 appears twice"),
        ("E2", {"sweep_clusters": [4, 4]}, "sweep_clusters: 4 appears twice"),
        ("X3", {"eps": [0.1, 0.1]}, "eps: 0.1 appears twice"),
        ("X6", {"radii": [0.1, 0.1]}, "radii: 0.1 appears twice"),
    ],
)
def test_a_value_that_appears_twice_is_refused(identifier: str, settings: dict[str, Any], expected: str) -> None:
    kind = load_experiment(identifier).settings
    with pytest.raises(UserError) as refused:
        validate(kind, settings)
    assert expected in str(refused.value), json.dumps(settings)


@pytest.mark.parametrize(
    ("identifier", "changes", "expected"),
    [
        ("C5", {"large_steps": 2}, "experiments.C5.large_steps: 2 x 0.05 of the radius does not reach the surface"),
        ("C6", {"large_steps": 2}, "experiments.C6.large_steps: 2 x 0.05 of the radius does not reach the surface"),
        ("D4", {"steps": 3}, "experiments.D4.steps: 3 x 0.25 of the radius does not reach the surface"),
        # The study's D_rand and D_det have 60 steps of 0.1.
        ("X6", {"radii": (0.9, 8.0)}, "experiments.X6.radii: 8: 60 x 0.0125 of the radius does not reach the surface"),
    ],
)
def test_attacks_that_end_inside_the_ball_are_refused(
    study: Study, identifier: str, changes: dict[str, Any], expected: str
) -> None:
    experiment = load_experiment(identifier)
    settings = study.experiment_settings(identifier, experiment.settings)
    assert experiment.needs(Pieces(study), settings)
    with pytest.raises(UserError) as refused:
        experiment.needs(Pieces(study), replace(settings, **changes))
    assert str(refused.value).startswith(expected)


def test_a10_shows_sets_with_an_image_for_each_train_image(study: Study) -> None:
    d_det = study.derived["D_det"]
    derived = {
        "D_det": d_det,
        "errors": replace(d_det, method=Misclassified(kind="errors")),
        "of-test": replace(d_det, splits=("test",)),
    }
    needs = a10.needs(Pieces(replace(study, derived=derived)), a10.Settings())
    assert [need.row for need in needs] == ["D", "D_det"]


def test_x3_needs_an_attack_to_compare_with(study: Study) -> None:
    assert study.robustness is not None
    alone = replace(study, robustness=replace(study.robustness, attacks=(x3.STANDARD_VERSION,)))
    with pytest.raises(UserError, match=r"^experiments\.X3\.attacks: the study has no other attack to compare with$"):
        x3.needs(Pieces(alone), x3.Settings())


def test_x3_has_the_starts_of_a1(study: Study) -> None:
    experiments = {"A1": {"starts": ["images"]}, "X3": {}}
    needs = x3.needs(Pieces(replace(study, seeds=(0,), experiments=experiments)), x3.Settings())
    assert [need.row for need in needs] == ["standard", "adversarial", "D_NR-images", "D_R-images"]


def test_c1_takes_a_size_once(study: Study) -> None:
    size = c1.Size(samples=40, epochs=2)
    settings = c1.Settings(eps={"l2": (0.5,)}, sizes=(size, replace(size, epochs=3)))
    with pytest.raises(UserError, match=r"^experiments\.C1\.sizes: 40 samples appear twice$"):
        c1.needs(Pieces(study), settings)


@pytest.mark.parametrize(
    ("needs", "settings", "expected"),
    [
        (e1.needs, e1.Settings(training=e1.Training(clusters=10, dimension=9)), "E1.training.clusters: 10"),
        (e2.needs, e2.Settings(training=e1.Training(clusters=10, dimension=9)), "E2.training.clusters: 10"),
        (e2.needs, e2.Settings(sweep_clusters=(2, 50), sweep_dimensions=(49, 500)), "E2.sweep_clusters: 50"),
    ],
)
def test_orthogonal_centres_have_to_fit(study: Study, needs: Any, settings: Any, expected: str) -> None:
    with pytest.raises(
        UserError, match=rf"^experiments\.{expected} orthogonal centres do not fit into \d+ dimensions$"
    ):
        needs(Pieces(study), settings)


@pytest.mark.parametrize("identifier", ["A12", "C8"])
def test_one_example_is_too_few(identifier: str) -> None:
    kind = load_experiment(identifier).settings
    with pytest.raises(UserError, match=r"^examples: .*greater than or equal to 2"):
        validate(kind, {"examples": 1})
    assert validate(kind, {"examples": 2})


def test_c8_needs_weights_that_some_adversary_leaves(study: Study) -> None:
    """With p = 0.55 the first feature is worth 0.1; the adversary of 2 eta = 0.4 takes more."""
    with pytest.raises(
        UserError, match=r"^experiments\.C8\.training_eps: 2 eta is a radius of 0\.4, and x1 is worth 2 p - 1"
    ):
        c8.needs(Pieces(study), c8.Settings(p=0.55))
    # Below eta the other features are useful, whatever p is.
    for fine in (c8.Settings(p=0.75), c8.Settings(p=0.5, training_eps=0.5)):
        assert len(c8.needs(Pieces(study), fine)) == len(study.seeds)


def test_x4_has_the_starts_of_a1_and_the_seeds_of_both(study: Study) -> None:
    experiments = {"A1": {"starts": ["images"], "seeds": [0]}, "A2": {"seeds": [0, 1]}, "X4": {}}
    needs = x4.needs(Pieces(replace(study, seeds=(0, 1), experiments=experiments)), x4.Settings())
    rows = [(need.row, need.seed) for need in needs]
    assert len(set(rows)) == len(rows)
    of_a1 = {"standard", "adversarial", "D_NR-images", "D_R-images"}
    assert {row for row, seed in rows if seed == 0} == {*of_a1, *a2.DERIVED_SETS}
    assert {row for row, seed in rows if seed == 1} == {"standard", *a2.DERIVED_SETS}


@pytest.mark.parametrize("name", ["mnist", "cifar10", "svhn"])
def test_full_studies_of_feature_learning_attack_as_far_as_the_paper_says(name: str) -> None:
    path = REPOSITORY / "workflow" / "studies" / f"feature-learning-{name}.yaml"
    study = read_study(path)
    assert study.robustness is not None
    adversary = study.training["adversarial"].adversary
    assert adversary is not None
    assert adversary.norm == "linf"
    assert study.robustness.eps == (adversary.eps,)
    assert study.experiments["D3"]["eps"] == adversary.eps
    assert study.training["standard"].adversary is None
