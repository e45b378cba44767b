"""The dogs and cats of two-pathways-2021, Section 2, Table 1 and Figure 3, as small images with four known features.

Every image has three features of value -1 or 1. Each agrees with the label (dog 1, cat -1) with its own probability:

- f1, snout: a large, bright patch; predictive and robust.
- f2, dark eyes: two small patches, a little darker; predictive, not robust.
- f3, odd first pixel: one pixel, a little brighter; weakly predictive, not robust. Such a network cannot learn
  parities, so "odd" means a brighter pixel.
- f4 = f1 + f3, the contaminated robust feature.

The features are linear functions of the image: the mean of (x - 1/2) over the patch, in units of the patch's amplitude.
So the minimum of y f_j(x + delta) over an Linf ball of radius eps is y f_j(x) - eps / amplitude_j. For f4 it is
y f4(x) - eps / amplitude_1 - eps / amplitude_3.

Section 2 predicts for a network trained on pairs (x + delta, t) with t = -y:
- delta sets f2 to t (dogs with lighter eyes, labelled cat): the network learns snout => cat and light eyes => cat. The
  second rule holds on D, so the network is more accurate on D than the first rule alone would be.
- delta sets f3 to t (dogs with an even first pixel, labelled cat): the network learns snout => cat, dark eyes => cat
  and even pixel => cat. It learns -f1 + f3 rather than f4, although E[t f4] is positive too (equations 6 to 8). None of
  these rules helps on D. The first two help on D with flipped labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from robustfeatures.attacks.projected_gradient_descent import pgd
from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.randomness import derive_seed, make_generator
from robustfeatures.models.simple import two_layer_relu
from robustfeatures.training.loop import HistoryRow, train
from robustfeatures.training.probes import ProbeSet
from robustfeatures.training.settings import Training

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run
    from robustfeatures.models.network import Network

Array = NDArray[np.float64]

SIDE = 8
FEATURES = ("snout", "dark eyes", "odd first pixel")
SNOUT, EYES, PIXEL = range(3)
# Rows and columns of each patch, and whether the feature makes it brighter or darker.
PATCHES = (
    (((4, 7), (2, 6)), 1),
    (((2, 3), (1, 3)), -1),
    (((2, 3), (5, 7)), -1),
    (((0, 1), (0, 1)), 1),
)
PATCHES_OF = ((0,), (1, 2), (3,))
# f4 = f1 + f3, and the feature that the network learns instead when the pixel is set to the new label.
COMBINED = {"snout + pixel": (1, 0, 1), "-snout + pixel": (-1, 0, 1)}
STEPS = 20


@dataclass(frozen=True)
class Pets:
    """Features (n, 3) and labels (n,), each -1 or 1, and noise (n, 8, 8) of n images."""

    features: Array
    labels: Array
    noise: Array

    def images(self, amplitudes: Sequence[float]) -> torch.Tensor:
        """The images, float32 (n, 1, 8, 8) in [0, 1]."""
        pattern = np.stack([amplitude * mask for amplitude, mask in zip(amplitudes, feature_masks(), strict=True)])
        images = np.clip(0.5 + np.einsum("nf,fhw->nhw", self.features, pattern) + self.noise, 0, 1)
        return torch.from_numpy(images[:, None].astype(np.float32))

    def with_feature(self, feature: int, values: Array | float) -> Pets:
        """The same images with one feature set to `values` (n,)."""
        features = self.features.copy()
        features[:, feature] = values
        return replace(self, features=features)


def feature_masks() -> Array:
    """The pixels of each feature, 1 where it brightens and -1 where it darkens them: (3, 8, 8)."""
    found = np.zeros((len(FEATURES), SIDE, SIDE))
    for feature, patches in enumerate(PATCHES_OF):
        for ((top, bottom), (left, right)), sign in (PATCHES[patch] for patch in patches):
            found[feature, top:bottom, left:right] = sign
    return found


def draw_pets(generator: np.random.Generator, count: int, agreement: Sequence[float], noise: float) -> Pets:
    """Draw dogs and cats; features agree with labels with probability `agreement` (3,), `noise` is a std per pixel."""
    labels = generator.choice([-1.0, 1.0], count)
    agree = generator.random((count, len(FEATURES))) < np.asarray(agreement)
    features = np.where(agree, labels[:, None], -labels[:, None])
    return Pets(features, labels, noise * generator.normal(size=(count, SIDE, SIDE)))


def read_features(images: torch.Tensor, amplitudes: Sequence[float]) -> Array:
    """f1, f2, f3 of images (n, 1, 8, 8) in [0, 1]: (n, 3), close to -1 or 1 without noise."""
    pattern = feature_masks()
    areas = np.abs(pattern).sum(axis=(1, 2))
    sums = np.einsum("nhw,fhw->nf", images[:, 0].double().numpy() - 0.5, pattern)
    found: Array = sums / (areas * np.asarray(amplitudes))
    return found


def measure_usefulness(
    features: Array, labels: Array, amplitudes: Sequence[float], eps: float
) -> dict[str, tuple[float, float]]:
    """E[y f] and E[inf y f(x + delta)] over the Linf ball, for f1, f2, f3 and their combinations: equations 1 and 2."""
    weights = {name: tuple(np.eye(len(FEATURES))[number]) for number, name in enumerate(FEATURES)} | COMBINED
    found = {}
    for name, weight in weights.items():
        useful = float((labels * (features @ np.asarray(weight))).mean())
        lost = eps * float((np.abs(weight) / np.asarray(amplitudes)).sum())
        found[name] = useful, useful - lost
    return found


def train_network(
    images: torch.Tensor, labels: Array, training: Training, width: int, seed: int, probes: Sequence[ProbeSet] = ()
) -> tuple[Network, list[HistoryRow]]:
    """Train a network of one hidden layer on images (n, 1, 8, 8) and labels (n,) of -1 (cat) or 1 (dog).

    Also returns the values of the probes after each epoch.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "initialisation"))
        network = two_layer_relu(num_classes=2, image_shape=(1, SIDE, SIDE), width=width)
    network.set_normalisation(images.mean(), images.std())
    return network, train(network, InMemory(images), class_indices(labels), training, seed=seed, probes=probes)


def class_indices(labels: Array) -> torch.Tensor:
    """Classes 0 (cat) and 1 (dog), int64 (n,)."""
    return torch.from_numpy((labels > 0).astype(np.int64))


def dog_score(network: Network, images: torch.Tensor) -> Array:
    """The dog's logit minus the cat's (n,)."""
    with torch.no_grad():
        logits = network(images).double().numpy()
    found: Array = logits[:, 1] - logits[:, 0]
    return found


def measure_effects(network: Network, pets: Pets, amplitudes: Sequence[float]) -> dict[str, float]:
    """Half the change of the dog's score when one feature alone turns from cat to dog, mean over images."""
    found = {}
    for feature, name in enumerate(FEATURES):
        with_it, without = (
            dog_score(network, pets.with_feature(feature, sign).images(amplitudes)) for sign in (1.0, -1.0)
        )
        found[name] = float((with_it - without).mean() / 2)
    for name, weights in COMBINED.items():
        toward, away = pets, pets
        for feature in (SNOUT, PIXEL):
            toward = toward.with_feature(feature, float(weights[feature]))
            away = away.with_feature(feature, -float(weights[feature]))
        with_it, without = (dog_score(network, each.images(amplitudes)) for each in (toward, away))
        found[name] = float((with_it - without).mean() / 2)
    return found


def make_training_sets(
    pets: Pets, reference: Network, amplitudes: Sequence[float], eps: float
) -> dict[str, tuple[torch.Tensor, Array]]:
    """Images and labels of D and of the flipped pairs: f2 or f3 set to the new label, or changed by targeted PGD."""
    flipped = -pets.labels
    attacked = pgd(
        reference,
        pets.images(amplitudes),
        class_indices(flipped),
        norm="linf",
        eps=eps,
        step_size=2.5 * eps / STEPS,
        steps=STEPS,
        targeted=True,
    )
    return {
        "D": (pets.images(amplitudes), pets.labels),
        "eyes set to the new label": (pets.with_feature(EYES, flipped).images(amplitudes), flipped),
        "pixel set to the new label": (pets.with_feature(PIXEL, flipped).images(amplitudes), flipped),
        "PGD on a network of D": (attacked, flipped),
    }


def measure(
    run: Run,
    *,
    seed: int,
    examples: int,
    test_examples: int,
    agreement: Sequence[float],
    amplitudes: Sequence[float],
    noise: float,
    eps: float,
    width: int,
    training: Mapping[str, Any],
) -> list[dict[str, str | int | float]]:
    """Columns trained_on (a training set), epoch, quantity, feature, value.

    Of the training set the quantities are "usefulness" and "robust usefulness" of a feature for the labels. Of the
    network they are "accuracy" (a share) after each epoch, with feature "D" or "flipped D", and "effect" of a feature
    on the dog's score after the last epoch.
    """
    pets = draw_pets(make_generator(seed, "train"), examples, agreement, noise)
    test = draw_pets(make_generator(seed, "test"), test_examples, agreement, noise)
    settings = Training(**training)
    reference, _ = train_network(pets.images(amplitudes), pets.labels, settings, width, derive_seed(seed, "reference"))
    shown = InMemory(test.images(amplitudes))
    probes = [
        ProbeSet("D", shown, class_indices(test.labels)),
        ProbeSet("flipped D", shown, class_indices(-test.labels)),
    ]
    rows: list[dict[str, str | int | float]] = []
    sets = make_training_sets(pets, reference, amplitudes, eps)
    for done, (name, (images, labels)) in enumerate(sets.items()):
        run.progress(done, len(sets))
        network, history = train_network(images, labels, settings, width, derive_seed(seed, "network"), probes)
        found = [(each.epoch, "accuracy", each.probe, each.value) for each in history]
        for feature, values in measure_usefulness(read_features(images, amplitudes), labels, amplitudes, eps).items():
            for quantity, value in zip(("usefulness", "robust usefulness"), values, strict=True):
                found.append((settings.epochs, quantity, feature, value))
        for feature, effect in measure_effects(network, test, amplitudes).items():
            found.append((settings.epochs, "effect", feature, effect))
        rows += [
            dict(zip(("trained_on", "epoch", "quantity", "feature", "value"), (name, *each), strict=True))
            for each in found
        ]
    return rows
