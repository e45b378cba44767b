"""E3 and E4: their networks, and their tables, figures and claims from known rows."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.settings import Data, MergeClasses
from robustfeatures.errors import UserError
from robustfeatures.experiments import e3_heads_on_frozen_features as e3
from robustfeatures.experiments import e4_two_classes_and_ten as e4
from robustfeatures.experiments.experiment import Results
from robustfeatures.measurements import feature_heads, two_sides
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.store.datasets import write_dataset
from robustfeatures.pipeline.study.parameters import Measurement
from robustfeatures.pipeline.study.study import Study, read_study
from robustfeatures.pipeline.study.validation import validate
from tests.conftest import REPOSITORY
from tests.experiments.known_rows import make_results

STUDIES = REPOSITORY / "workflow" / "studies"


@pytest.fixture(scope="module")
def study() -> Study:
    return read_study(STUDIES / "digits-full.yaml")


def results_of(rows: list[dict[str, Any]], settings: Any) -> Results:
    return make_results(settings, measurements=pd.DataFrame(rows))


def test_names_are_those_of_the_measurements() -> None:
    """An experiment imports no torch while the study is unfolded, so it repeats the names of the rows."""
    for experiment, measurement, names in (
        (e3, feature_heads, ("TWO_CLASSES", "K_CLASSES", "FEATURES")),
        (e4, two_sides, ("SUMMED", "LARGEST", "OWN", "READ_OUT", "EITHER")),
    ):
        for name in names:
            assert getattr(experiment, name) == getattr(measurement, name)


def heads() -> Results:
    """Of four classes: 2-class neurons see their side with 0.5 and 0.4, k-class neurons their class with 0.9.

    The classes' features have different lengths: all own lambda D are 2, all others -0.1.
    """
    matrices = {
        e3.FEATURES: np.eye(4),
        e3.TWO_CLASSES: np.array([[0.5, 0.4, -0.1, 0.0]] * 2 + [[-0.1, 0.0, 0.5, 0.4]] * 2),
        e3.K_CLASSES: np.full((4, 4), 0.1) + 0.8 * np.eye(4),
    }
    rows = [
        {
            "row": "heads",
            "seed": seed,
            "head": head,
            "neuron": neuron,
            "feature": feature,
            "cosine": matrix[neuron, feature],
            "coefficient": float("nan") if head == e3.FEATURES else lambdas(head)[neuron, feature],
            "accuracy": float("nan") if head == e3.FEATURES else 0.75,
        }
        for seed in (0, 1)
        for head, matrix in matrices.items()
        for neuron, feature in itertools.product(range(4), range(4))
    ]
    return results_of(rows, e3.Settings(learning_rate=0.1, steps=10))


def lambdas(head: str) -> Any:
    own = np.eye(4) if head == e3.K_CLASSES else np.kron(np.eye(2), np.ones((2, 2)))
    return np.where(own == 1, 2.0, -0.1)


def test_cosines_by_relation() -> None:
    table = e3.table(heads()).set_index(["head", "relation"])
    expected = {
        (e3.FEATURES, e3.OWN_SIDE): 0.0,
        (e3.FEATURES, e3.OTHER_SIDE): 0.0,
        (e3.TWO_CLASSES, e3.WHOLE_SIDE): 0.45,
        (e3.TWO_CLASSES, e3.OTHER_SIDE): -0.05,
        (e3.K_CLASSES, e3.OWN_CLASS): 0.9,
        (e3.K_CLASSES, e3.OWN_SIDE): 0.1,
        (e3.K_CLASSES, e3.OTHER_SIDE): 0.1,
    }
    assert table["cosine"].to_dict() == pytest.approx(expected)
    assert table.loc[(e3.TWO_CLASSES, e3.WHOLE_SIDE), "coefficient"] == 2
    assert table.loc[(e3.K_CLASSES, e3.OTHER_SIDE), "coefficient"] == -0.1
    assert table.loc[(e3.K_CLASSES, e3.OWN_SIDE), "accuracy"] == 75


def test_claims_of_heads() -> None:
    """Cosines of Figure 1; lambda of equal weights has the share 100 percent, whatever the cosines are."""
    found = e3.claims(heads())
    np.testing.assert_allclose([claim.values for claim in found], [[50] * 2, [80] * 2, [100] * 2, [0.3] * 2, [0.1] * 2])
    assert {claim.judge()["verdict"] for claim in found} == {"held"}


def test_a_neuron_with_one_large_lambda_is_no_average() -> None:
    results = heads()
    rows = results.measurements
    at = (rows["head"] == e3.TWO_CLASSES) & (rows["neuron"] == 2) & (rows["feature"] == 3)
    rows.loc[at, "coefficient"] = 8.0
    verdicts = {claim.quantity: claim for claim in e3.claims(results) if claim.judge()["verdict"] != "held"}
    assert [list(claim.values) for claim in verdicts.values()] == [[25.0, 25.0]]
    assert all("least over largest lambda" in quantity for quantity in verdicts)


def test_a_panel_for_each_head(tmp_path: Path) -> None:
    names = ("cat", "dog", "bird", "frog")
    images = ImageDataset(np.zeros((4, 1, 2, 2), np.float32), np.arange(4), {"source_index": np.arange(4)}, names)
    write_dataset(tmp_path / "D.zarr", {"train": images})
    figure = e3.figure(replace(heads(), payloads={("D", 0): tmp_path / "D.zarr"}))
    assert [axes.get_title() for axes in figure.axes[:3]] == [e3.FEATURES, e3.TWO_CLASSES, e3.K_CLASSES]
    np.testing.assert_allclose(figure.axes[1].images[0].get_array()[2], [-0.1, 0.0, 0.5, 0.4])
    assert [label.get_text() for label in figure.axes[1].get_xticklabels()] == list(names)
    assert "class" in figure.axes[0].get_ylabel()
    for axes in figure.axes[:3]:
        across, down = axes.lines
        assert (set(across.get_ydata()), set(down.get_xdata())) == ({1.5}, {1.5})


def test_both_networks_are_asked_for_the_same_sides(study: Study) -> None:
    """The merged classes are the sides of the other network, and both are trained and tested on the same images."""
    settings = e4.Settings(tasks={"parity": e4.Task(merged="parity", eps=(0.5,))})
    two, many = (need.recipe for need in e4.needs(Pieces(study), settings)[:2])
    operations = study.other_data["parity"].operations
    assert isinstance(operations[-1], MergeClasses)
    assert isinstance(two.parameters, Measurement)
    assert isinstance(many.parameters, Measurement)
    assert two.parameters.settings["sides"] == [[name] for name in operations[-1].groups]
    assert many.parameters.settings["sides"] == [list(names) for names in operations[-1].groups.values()]
    shared = {name: value for name, value in many.parameters.settings.items() if name != "sides"}
    assert shared == {name: value for name, value in two.parameters.settings.items() if name != "sides"}
    for recipe, operated in ((two, operations), (many, ())):
        data = recipe.inputs["data"]
        assert recipe.inputs["model"].inputs["data"] is data
        assert isinstance(data.parameters, Data)
        assert study.data is not None
        assert data.parameters == replace(study.data, operations=operated)


def test_linf_radii_of_0_to_255_are_reported() -> None:
    asked = {"tasks": {"parity": {"merged": "parity", "eps": [1.0, 8.0]}}}
    assert validate(e4.Settings, asked).norm == "l2"
    with pytest.raises(UserError, match=r"^experiments\.E4.*tasks: .*a Linf radius is below 1"):
        validate(e4.Settings, {"norm": "linf", **asked}, "experiments.E4.")


def test_data_that_are_not_merged_are_reported(study: Study) -> None:
    settings = e4.Settings(tasks={"parity": e4.Task(merged="D", eps=(0.5,))})
    with pytest.raises(UserError, match=r"^experiments\.E4\.tasks\.parity\.merged: the last operation of 'digits'"):
        e4.needs(Pieces(study), settings)


def sides() -> Results:
    """Of 100 images: at eps 1 the 2-class network holds 40, the other 70 by its own loss, 30 by either."""
    held = {
        ("2-class", e4.SUMMED, e4.READ_OUT): 40,
        **{("k-class", read_out, e4.OWN): 70 for read_out in (e4.SUMMED, e4.LARGEST)},
        **{("k-class", read_out, e4.READ_OUT): 31 for read_out in (e4.SUMMED, e4.LARGEST)},
        **{("k-class", read_out, e4.EITHER): 30 for read_out in (e4.SUMMED, e4.LARGEST)},
    }
    rows = [
        {
            "row": network,
            "task": "parity",
            "seed": seed,
            "read_out": read_out,
            "attack": attack,
            "eps": eps,
            "correct": 95 if eps == 0 else correct + seed,
            "total": 100,
        }
        for seed, eps in itertools.product((0, 1), (0.0, 1.0))
        for (network, read_out, attack), correct in held.items()
    ]
    return results_of(rows, e4.Settings(tasks={"parity": e4.Task(merged="parity", eps=(1.0,))}))


def test_the_attack_decides_the_comparison() -> None:
    table = e4.table(sides()).set_index(["task", "network", "eps"])["accuracy"]
    assert table["parity", "2-class", 1.0] == 40.5
    assert table["parity", "k-class, summed logits, attack on its own cross-entropy", 1.0] == 70.5
    assert table["parity", "k-class, largest logit, attack on either", 1.0] == 30.5
    assert table["parity", "2-class", 0.0] == 95
    assert len(table) == 14
    found = e4.claims(sides())
    # Each network faces one attack, on what is read out. The attack on another loss is part of a control alone.
    assert [list(claim.values) for claim in found if not claim.control] == [[-9.0, -9.0]] * 2
    assert [list(claim.values) for claim in found if claim.control] == [[39.0, 39.0]] * 2
    assert {claim.setting for claim in found} == {"parity, summed logits", "parity, largest logit"}


@pytest.mark.parametrize(("norm", "name", "absent"), [("l2", "L2", "Linf"), ("linf", "Linf", "L2")])
def test_the_norm_in_words_is_that_of_the_attack(norm: Any, name: str, absent: str, study: Study) -> None:
    results = replace(sides(), settings=replace(sides().settings, norm=norm, steps=7, relative_step_size=0.25))
    (axes,) = e4.figure(results).axes
    words = [axes.get_xlabel(), axes.get_ylabel(), e4.EXPERIMENT.caption]
    words += [claim.quantity for claim in e4.claims(results)]
    assert axes.get_xlabel() == f"radius of {name} PGD, 7 steps"
    assert axes.get_ylabel() == f"accuracy under {name} PGD (%)"
    assert not any(absent in text for text in words)
    for need in e4.needs(
        Pieces(study), replace(results.settings, tasks={"parity": e4.Task(merged="parity", eps=(0.5,))})
    ):
        assert isinstance(need.recipe.parameters, Measurement)
        assert need.recipe.parameters.settings["norm"] == norm


def test_the_figure_shows_both_attacks_on_both_read_outs() -> None:
    figure = e4.figure(sides())
    ends = sorted(float(line.get_ydata()[-1]) for line in figure.axes[0].lines)
    assert ends == [31.5, 31.5, 40.5, 70.5, 70.5]


def test_e4_refuses_steps_that_end_inside_the_ball(study: Study) -> None:
    settings = e4.Settings(tasks={"parity": e4.Task(merged="parity", eps=(0.5,))}, steps=5, relative_step_size=0.1)
    with pytest.raises(UserError, match=r"^experiments\.E4\.steps: 5 x 0\.1 of the radius does not reach the surface"):
        e4.needs(Pieces(study), settings)
