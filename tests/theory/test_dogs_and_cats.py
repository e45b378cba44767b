"""The dogs and cats of two-pathways-2021, Section 2: the features are what they are said to be, and are recovered."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from robustfeatures.attacks import pgd
from robustfeatures.engine.randomness import derive_seed, make_generator
from robustfeatures.models.network import Network
from robustfeatures.models.simple import two_layer_relu
from robustfeatures.theory.dogs_and_cats import (
    EYES,
    FEATURES,
    PIXEL,
    SNOUT,
    Pets,
    class_indices,
    dog_score,
    draw_pets,
    feature_masks,
    make_training_sets,
    measure,
    measure_effects,
    measure_usefulness,
    read_features,
    train_network,
)
from robustfeatures.training.settings import Training
from tests.runs import MemoryRun

AGREEMENT, AMPLITUDES, NOISE, EPS = (0.95, 0.9, 0.55), (0.25, 0.08, 0.08), 0.05, 0.16
TRAINING = Training(epochs=20, batch_size=50, learning_rate=0.05, weight_decay=5e-4, schedule="constant")


@pytest.fixture(scope="module")
def pets() -> Pets:
    return draw_pets(np.random.default_rng(0), 500, AGREEMENT, NOISE)


@pytest.fixture(scope="module")
def reference(pets: Pets) -> Network:
    return train_network(pets.images(AMPLITUDES), pets.labels, TRAINING, 16, seed=7)[0]


def test_features_agree_with_the_label_as_often_as_they_should() -> None:
    many = draw_pets(np.random.default_rng(1), 20_000, AGREEMENT, 0.0)
    share = (many.features == many.labels[:, None]).mean(axis=0)
    assert share == pytest.approx(AGREEMENT, abs=5 / (2 * math.sqrt(20_000)))
    assert set(np.unique(many.labels)) == {-1, 1}


def test_patches_do_not_overlap() -> None:
    assert (np.abs(feature_masks()).sum(axis=0) <= 1).all()


def test_features_are_read_as_they_were_drawn(pets: Pets) -> None:
    """The mean of m pixels of noise has the standard deviation noise / (amplitude sqrt(m))."""
    areas = np.abs(feature_masks()).sum(axis=(1, 2))
    deviation = NOISE / (np.array(AMPLITUDES) * np.sqrt(areas))
    difference = read_features(pets.images(AMPLITUDES), AMPLITUDES) - pets.features
    assert (np.abs(difference) < 5 * deviation).all()
    clean = draw_pets(np.random.default_rng(2), 20, AGREEMENT, 0.0)
    assert read_features(clean.images(AMPLITUDES), AMPLITUDES) == pytest.approx(clean.features, abs=1e-6)


def test_robust_usefulness_is_the_least_over_the_ball(pets: Pets) -> None:
    """Each feature is linear, so the worst image of the ball is a corner: written out here for each of them."""
    images, labels = pets.images(AMPLITUDES), pets.labels
    found = measure_usefulness(read_features(images, AMPLITUDES), labels, AMPLITUDES, EPS)
    directions = {name: np.eye(3)[number] for number, name in enumerate(FEATURES)}
    directions |= {"snout + pixel": np.array([1, 0, 1]), "-snout + pixel": np.array([-1, 0, 1])}
    for name, weights in directions.items():
        gradient = np.einsum("f,fhw->hw", weights, feature_masks())
        corner = torch.from_numpy(-EPS * labels[:, None, None] * np.sign(gradient))[:, None]
        worst = read_features(images.double() + corner, AMPLITUDES) @ weights
        assert found[name][1] == pytest.approx((labels * worst).mean(), abs=1e-9)


def test_the_four_features_are_of_the_kinds_of_table_1(pets: Pets) -> None:
    found = measure_usefulness(pets.features, pets.labels, AMPLITUDES, EPS)
    assert found["snout"][0] > 0 < found["snout"][1]
    assert found["dark eyes"][0] > 0.5
    assert found["dark eyes"][1] < 0
    assert 0 < found["odd first pixel"][0] < 0.3
    assert found["odd first pixel"][1] < 0
    # Equation 8: contaminated.
    assert found["snout + pixel"][0] > found["snout"][0]
    assert found["snout + pixel"][1] < 0


def test_flipped_pairs_stay_in_the_ball(pets: Pets, reference: Network) -> None:
    sets = make_training_sets(pets, reference, AMPLITUDES, EPS)
    clean = sets["D"][0]
    for name, (images, labels) in sets.items():
        assert (images - clean).abs().max() <= EPS + 1e-6
        assert (labels == (pets.labels if name == "D" else -pets.labels)).all()
    # Targeted PGD raises the score of the new label.
    attacked, flipped = sets["PGD on a network of D"]
    assert (flipped * (dog_score(reference, attacked) - dog_score(reference, clean)) > 0).all()
    # 20 steps that reach 2.5 times as far as the radius.
    goal = class_indices(flipped)
    expected = pgd(reference, clean, goal, norm="linf", eps=EPS, step_size=EPS / 8, steps=20, targeted=True)
    torch.testing.assert_close(attacked, expected)
    eyes, pixel = (sets[f"{part} set to the new label"] for part in ("eyes", "pixel"))
    # Half of the eyes change, by twice their amplitude, and nothing else does.
    changed = (eyes[0] - clean)[:, 0].numpy() != 0
    assert not changed[:, feature_masks()[EYES] == 0].any()
    assert changed[pets.features[:, EYES] == pets.labels].any(axis=(1, 2)).all()
    assert not changed[pets.features[:, EYES] != pets.labels].any()
    combined = measure_usefulness(read_features(pixel[0], AMPLITUDES), pixel[1], AMPLITUDES, EPS)
    assert 0 < combined["snout + pixel"][0] < combined["-snout + pixel"][0]


def test_effects_of_a_network_that_is_known() -> None:
    """A network whose hidden units pass a linear score on: the effects are its weights times the amplitudes."""
    weights = 3.0 * feature_masks()[SNOUT] + 2.0 * feature_masks()[EYES] - 1.0 * feature_masks()[PIXEL]
    known = two_layer_relu(num_classes=2, image_shape=(1, 8, 8), width=4)
    hidden, head = known.features[1], known.head
    with torch.no_grad():
        for parameter in known.parameters():
            parameter.zero_()
        hidden.weight[0] = torch.from_numpy(weights.ravel())
        # Never cut off by the ReLU.
        hidden.bias[0] = 100.0
        head.weight[1, 0] = 1.0
    silent = draw_pets(np.random.default_rng(3), 20, AGREEMENT, 0.0)
    areas = np.abs(feature_masks()).sum(axis=(1, 2))
    expected = np.array([3.0, 2.0, -1.0]) * areas * np.array(AMPLITUDES)
    found = measure_effects(known, silent, AMPLITUDES)
    assert [found[name] for name in FEATURES] == pytest.approx(expected, abs=1e-4)
    assert found["snout + pixel"] == pytest.approx(expected[0] + expected[2], abs=1e-4)
    assert found["-snout + pixel"] == pytest.approx(-expected[0] + expected[2], abs=1e-4)


def test_networks_recover_what_section_2_predicts(pets: Pets, reference: Network) -> None:
    sets = make_training_sets(pets, reference, AMPLITUDES, EPS)
    test = draw_pets(np.random.default_rng(4), 500, AGREEMENT, NOISE)
    learned = {}
    for name in ("D", "eyes set to the new label", "pixel set to the new label"):
        network, _ = train_network(*sets[name], TRAINING, 16, seed=1)
        learned[name] = measure_effects(network, test, AMPLITUDES)
    # Snout, dark eyes and odd pixel speak for a dog.
    assert all(learned["D"][feature] > 0 for feature in FEATURES)
    eyes, pixel = learned["eyes set to the new label"], learned["pixel set to the new label"]
    # Snout => cat, light eyes => cat.
    assert eyes["snout"] < 0 < eyes["dark eyes"]
    # Snout => cat, dark eyes => cat, even pixel => cat, and -f1 + f3 before f1 + f3.
    assert pixel["snout"] < 0
    assert pixel["dark eyes"] < 0 < pixel["odd first pixel"]
    assert pixel["-snout + pixel"] > abs(pixel["snout + pixel"])


def test_rows_are_of_the_network_of_each_set_and_of_fresh_pets() -> None:
    asked = {"agreement": AGREEMENT, "amplitudes": AMPLITUDES, "noise": NOISE}
    training = {"epochs": 2, "batch_size": 20, "learning_rate": 0.05}
    rows = measure(MemoryRun(), seed=0, examples=200, test_examples=70, eps=EPS, width=8, training=training, **asked)
    found = {(row["trained_on"], row["epoch"], row["quantity"], row["feature"]): float(row["value"]) for row in rows}
    sets = {name for name, *_ in found}
    assert len(sets) == 4
    for name in sets:
        for epoch in (1, 2):
            # What is right of a pet is wrong of the flipped one.
            right, flipped = (found[name, epoch, "accuracy", tested] for tested in ("D", "flipped D"))
            assert right + flipped == pytest.approx(1.0)
    # The snout stays when eyes and label are turned, so it is as useful as before with the other sign.
    own, turned = (found[name, 2, "usefulness", "snout"] for name in ("D", "eyes set to the new label"))
    assert turned == pytest.approx(-own, abs=0.02)
    # The eyes agree with every new label; 200 pairs of eyes of four pixels leave five standard errors of noise.
    eyes = found["eyes set to the new label", 2, "usefulness", "dark eyes"]
    assert eyes == pytest.approx(1.0, abs=5 * NOISE / (AMPLITUDES[EYES] * math.sqrt(4 * 200)))
    train = draw_pets(make_generator(0, "train"), 200, AGREEMENT, NOISE)
    test = draw_pets(make_generator(0, "test"), 70, AGREEMENT, NOISE)
    seed = derive_seed(0, "network")
    network, _ = train_network(train.images(AMPLITUDES), train.labels, Training(**training), 8, seed)
    effects = {feature: found["D", 2, "effect", feature] for feature in measure_effects(network, test, AMPLITUDES)}
    assert effects == pytest.approx(measure_effects(network, test, AMPLITUDES), rel=1e-4)
    accuracy = ((dog_score(network, test.images(AMPLITUDES)) > 0) == (test.labels > 0)).mean()
    assert found["D", 2, "accuracy", "D"] == pytest.approx(accuracy)
