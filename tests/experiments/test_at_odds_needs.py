"""C1, C3 and C5: the attacks, images and epochs that they ask for in the study `digits-full`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import robustfeatures.experiments.c1_training_set_size as c1
import robustfeatures.experiments.c3_half_half_training as c3
import robustfeatures.experiments.c5_large_radius_examples as c5
from robustfeatures.attacks.evaluating.settings import Evaluation
from robustfeatures.data.settings import Data
from robustfeatures.derived.settings import Derived, UntargetedAttack
from robustfeatures.experiments.experiment import Need
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.study.parameters import Measurement
from robustfeatures.pipeline.study.study import Study, read_study
from robustfeatures.training.settings import Model, Training
from tests.conftest import REPOSITORY

# The share of the radius that a step of adversarial training has in this study.
RELATIVE_STEP = 0.4


@pytest.fixture(scope="module")
def study() -> Study:
    return read_study(REPOSITORY / "workflow" / "studies" / "digits-full.yaml")


def ask(study: Study, module: Any) -> list[Need]:
    settings = study.experiment_settings(module.EXPERIMENT.id, module.Settings)
    found: list[Need] = module.needs(Pieces(study), settings)
    return found


def training_of(model: Recipe) -> Training:
    assert isinstance(model.parameters, Model)
    return model.parameters.training


def trainings(needs: list[Need]) -> list[Training]:
    return [training_of(need.recipe.inputs["model"]) for need in needs if "model" in need.recipe.inputs]


@pytest.mark.parametrize("module", [c1, c3], ids=["C1", "C3"])
def test_adversarial_training_takes_steps_in_proportion_to_its_radius(study: Study, module: Any) -> None:
    attacks = [each.adversary for each in trainings(ask(study, module)) if each.adversary is not None]
    assert len({attack.eps for attack in attacks}) == 4
    for attack in attacks:
        assert attack.step_size == pytest.approx(RELATIVE_STEP * attack.eps)


def test_the_attack_of_c1_takes_steps_in_proportion_to_its_radius(study: Study) -> None:
    found = [need.recipe.parameters for need in ask(study, c1) if need.row == c1.TRANSFER]
    attacks = [each.settings for each in found if isinstance(each, Measurement)]
    assert len(attacks) == len(study.seeds)
    for attack in attacks:
        assert (attack["norm"], attack["eps"], attack["steps"]) == ("linf", 0.1, 4)
        assert attack["step_size"] == pytest.approx(RELATIVE_STEP * 0.1)


def test_each_seed_of_c1_draws_images_of_its_own(study: Study) -> None:
    drawn = {}
    for need in ask(study, c1):
        if need.columns.get("samples") == 40:
            data = need.recipe.inputs["model"].inputs["data"].parameters
            assert isinstance(data, Data)
            drawn[need.seed] = data.operations[-1]
    assert len(drawn) == len(set(drawn.values())) == len(study.seeds) > 1
    assert all(subset.seed == seed for seed, subset in drawn.items())  # type: ignore[union-attr]


def test_milestones_of_c1_keep_their_share_of_the_epochs(study: Study) -> None:
    """Milestones at a half and three quarters of 100 epochs stay there in the 40 epochs of 200 images."""
    base = Training(epochs=100, batch_size=10, learning_rate=0.1, schedule="step", milestones=(50, 75))
    needs = ask(replace(study, training={**study.training, "at-odds": base}), c1)
    fewer = trainings([need for need in needs if need.columns.get("samples") == 200])
    assert {(each.epochs, each.milestones) for each in fewer} == {(40, (20, 30))}


def test_networks_of_c3_are_attacked_at_the_radius_of_their_training(study: Study) -> None:
    radii = set()
    for need in ask(study, c3):
        attack, evaluated = training_of(need.recipe.inputs["model"]).adversary, need.recipe.parameters
        assert isinstance(evaluated, Evaluation)
        if attack is not None:
            assert (evaluated.norm, evaluated.eps) == (attack.norm, (0.0, attack.eps))
            radii.add(attack.eps)
    assert len(radii) == 4


def test_large_attacks_of_c5_take_steps_in_proportion_to_their_radius(study: Study) -> None:
    """A twentieth of the radius, the default of `large_relative_step_size`."""
    sets = [need.recipe.parameters for need in ask(study, c5) if need.recipe.stage.name == "derived"]
    attacks = [each.method for each in sets if isinstance(each, Derived)]
    assert {attack.eps for attack in attacks if isinstance(attack, UntargetedAttack)} == {3.0, 0.5}
    for attack in attacks:
        assert isinstance(attack, UntargetedAttack)
        assert attack.step_size == pytest.approx(0.05 * attack.eps)


def test_c5_compares_test_images_with_class_means_of_more_training_images(study: Study) -> None:
    original, *_ = ask(study, c5)
    data = original.recipe.parameters
    assert isinstance(data, Data)
    drawn = {each.split: each.samples for each in data.operations[-2:]}  # type: ignore[union-attr]
    assert drawn == {"train": 1000, "test": 100}
