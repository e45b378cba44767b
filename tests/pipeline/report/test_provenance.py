"""Captions and the provenance of views."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest

from robustfeatures.experiments.catalogue import load_experiment
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.view import Part, View
from robustfeatures.pipeline.report.provenance import describe_provenance, describe_recipes, make_caption
from robustfeatures.pipeline.study.study import read_study
from tests.conftest import REPOSITORY
from tests.experiments.shared.test_claims import results


@pytest.fixture(scope="module")
def planned() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The record of the smoke study's figure A1, and those of all recipes that it builds on."""
    study = replace(read_study(REPOSITORY / "workflow" / "studies" / "smoke.yaml"), seeds=(3, 5))
    a1 = load_experiment("A1")
    part = Part(a1, a1.settings(), a1.needs(Pieces(study), a1.settings()))
    found: dict[str, Any] = {}
    for need in part.needs:
        need.recipe.collect(found)
    view = View("smoke", "a study", "figure", [part], None, "float32")
    return view.record, [recipe.record() for recipe in found.values()]


def test_a_caption_says_how_the_figure_was_made(planned: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    a1, measured = load_experiment("A1"), results(comparable=True)
    text = make_caption(a1, measured, describe_provenance(a1, measured, *planned))
    title, shown, *made = text.strip().split("\n\n")
    assert title == "A1: Robust and non-robust data sets"
    assert shown == a1.caption.replace("{attack}", "attack")
    assert "Study: smoke, a study; float32." in made
    (attack,) = (line for line in made if line.startswith("Evaluation"))
    for part in ("digits-standard", "l2", "steps 5", "eps 0, 0.25, 0.5 and 0.75"):
        assert part in attack
    trained, robust = (line for line in made if line.startswith("Network"))
    assert trained.startswith("Network digits-standard")
    for part in ("small-cnn, width 16", "epochs 2"):
        assert part in trained
    assert robust == (
        "Network digits-adversarial: with the settings of digits-standard, "
        "but adversary (norm l2, eps 0.75, step size 0.15, steps 2)."
    )
    (inverted,) = (line for line in made if line.startswith("Derived set digits-D_NR-noise, digits-D_R-noise:"))
    assert "start noise" in inverted
    assert any(line.startswith("Data digits: digits, validation 0.15, test 0.25") for line in made)
    assert "Seeds: 3, 5." in made
    assert any("hollow diamonds" in line and "Table 7, CIFAR-10" in line for line in made)
    command = made[-1].removeprefix("To make it alone: ")
    assert command.startswith("snakemake ")
    # Its import takes a second of each process that finds the tests.
    from snakemake.cli import get_argument_parser

    asked = get_argument_parser().parse_args(shlex.split(command)[1:])
    assert asked.targets == ["results/smoke/figures/A1.png"]
    assert asked.config == ["study=smoke"]


def test_published_values_that_are_not_shown_are_told(planned: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    a1 = load_experiment("A1")
    other = describe_provenance(a1, results(comparable=False), *planned)
    assert any("nothing is compared" in line for line in other)
    assert not any("hollow" in line for line in other)
    # Their figure cannot mark them, so only the table shows them.
    unmarked = describe_provenance(replace(a1, marks_published=False), results(comparable=True), *planned)
    assert any("in the table alone: Table 7, CIFAR-10" in line for line in unmarked)
    assert not any("hollow" in line for line in unmarked)
    none = describe_provenance(a1, replace(results(comparable=False), published=None), *planned)
    assert any("prints no numbers" in line for line in none)


def test_warnings_stand_in_the_caption() -> None:
    noted = replace(results(comparable=False), notes=["the gradient\nis masked"])
    assert "\n\nWarning: the gradient\\nis masked\n\n" in make_caption(load_experiment("A1"), noted, ["Study: smoke."])


def test_a_line_says_what_differs_from_the_one_most_alike() -> None:
    def network(label: str, **changes: Any) -> dict[str, Any]:
        cropped = {"crop_padding": 4, "flip": True, "rotations": [90]}
        training = {"epochs": 12, "learning_rate": 0.1, "augmentation": cropped, "adversary": None, "nesterov": False}
        parameters = {"architecture": {"name": "resnet9", "width": 32}, "training": training | changes, "seed": 0}
        return {"stage": "model", "family": label, "parameters": parameters}

    adversary = {"norm": "l2", "eps": 0.5}
    recipes = [
        network("plain"),
        network("robust", adversary=adversary),
        network("more-robust", adversary={"norm": "l2", "eps": 1.0}),
        network("most-robust", adversary={"norm": "l2", "eps": 2.0}, epochs=40),
        network("slow", learning_rate=0.01, augmentation=None, nesterov=True),
        network("fast", learning_rate=0.3, augmentation=None),
        network("also-plain"),
        network(
            "other",
            epochs=1,
            learning_rate=1.0,
            augmentation=None,
            adversary=adversary,
            nesterov=True,
            decay=1,
            steps=[3],
        ),
    ]
    assert describe_recipes(recipes) == [
        "Network plain, also-plain: resnet9, width 32, training (epochs 12, learning rate 0.1, "
        "augmentation (crop padding 4, flip yes, rotations 90)).",
        "Network robust: with the settings of plain, but adversary (norm l2, eps 0.5).",
        "Network more-robust: with the settings of plain, but adversary (norm l2, eps 1).",
        "Network most-robust: with the settings of plain, but epochs 40, adversary (norm l2, eps 2).",
        "Network slow: with the settings of plain, but learning rate 0.01, no augmentation, nesterov yes.",
        "Network fast: with the settings of plain, but learning rate 0.3, no augmentation.",
        "Network other: resnet9, width 32, training (epochs 1, learning rate 1, adversary (norm l2, eps 0.5), "
        "nesterov yes, decay 1, steps 3).",
    ]


def test_a_line_refers_to_what_is_clear_and_of_its_kind() -> None:
    def measured(label: str, module: str = "theory.clusters", **settings: Any) -> dict[str, Any]:
        return {"stage": "measurement", "family": label, "parameters": {"module": module, "settings": settings}}

    assert describe_recipes(
        [
            # Two lines have the label `clusters`, so none may refer to it.
            measured("clusters", steps=100, bias=1),
            measured("clusters", steps=500, bias=1),
            measured("radius", steps=500, bias=2, sides=[1, 2], exact=True),
            measured("no-sides", steps=500, bias=2, sides=[], exact=False),
            measured("direction", "theory.direction", steps=500, bias=2, sides=[1, 2], exact=True),
        ]
    ) == [
        "Measurement clusters: theory.clusters; settings (steps 100, bias 1).",
        "Measurement clusters: theory.clusters; settings (steps 500, bias 1).",
        "Measurement radius: theory.clusters; settings (steps 500, bias 2, sides 1 and 2, exact yes).",
        "Measurement no-sides: with the settings of radius, but no sides, no exact.",
        "Measurement direction: theory.direction; settings (steps 500, bias 2, sides 1 and 2, exact yes).",
    ]


def test_a_measurement_is_told_by_its_settings() -> None:
    recipe = {
        "stage": "measurement",
        "family": "gaussian",
        "parameters": {"module": "theory.gaussian", "settings": {"eps": [0.5, 1.0], "clip": None, "exact": True}},
    }
    record = {
        "study": "theory",
        "title": "t",
        "precision": "float32",
        "parts": [],
        "outputs": ["theory/tables/A12.csv"],
    }
    lines = describe_provenance(load_experiment("A1"), results(comparable=False), record, [recipe])
    assert "Measurement gaussian: theory.gaussian; settings (eps 0.5 and 1, exact yes)." in lines
    assert lines[-1].endswith("results/theory/tables/A12.csv --config study=theory")


def test_a_long_list_of_numbers_is_told_by_its_range() -> None:
    def told(eps: list[Any]) -> list[str]:
        parameters = {"module": "theory.gaussian", "settings": {"eps": eps}}
        return describe_recipes([{"stage": "measurement", "family": "gaussian", "parameters": parameters}])

    def line(text: str) -> list[str]:
        return [f"Measurement gaussian: theory.gaussian; settings (eps {text})."]

    assert told([0.5, *range(10)]) == line("from 0 to 9 (11 values)")
    assert told([0.25, *range(9)]) == line("0.25, 0, 1, 2, 3, 4, 5, 6, 7 and 8")
    assert told([*"abcdefghijk"]) == line("a, b, c, d, e, f, g, h, i, j and k")
