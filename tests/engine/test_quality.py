"""The fast paths give the numbers of the plain float32 path, on real photographs and networks trained on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustfeatures.attacks import invert, pgd
from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.settings import Precision
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.training.accuracy import accuracy
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Training
from tests.photographs import photographs

SETTINGS = Training(epochs=8, batch_size=64, learning_rate=0.1, weight_decay=5e-4)


@dataclass(frozen=True)
class Photographs:
    """Training images and labels, and test images and labels."""

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def train_network(images: Tensor, labels: Tensor, seed: int) -> Network:
    torch.manual_seed(seed)
    network = create("small-cnn", num_classes=10, image_shape=(3, 32, 32), width=12)
    network.set_normalisation(images.mean((0, 2, 3)), images.std((0, 2, 3)))
    train(network, InMemory(images), labels, SETTINGS, seed=seed)
    return network


@pytest.fixture(scope="module")
def real() -> Photographs:
    arrays = photographs(300)
    order = np.random.default_rng(0).permutation(3000)
    images = torch.from_numpy(arrays["images"][order]).float() / 255
    labels = torch.from_numpy(arrays["labels"][order])
    return Photographs(images[:1500], labels[:1500], images[1500:], labels[1500:])


@pytest.fixture(scope="module")
def source(real: Photographs) -> Network:
    return train_network(real.images, real.labels, seed=0)


def attack(model: nn.Module, images: Tensor, goal: Tensor, eps: float, *, targeted: bool) -> Tensor:
    return pgd(model, images, goal, norm="l2", eps=eps, step_size=eps / 4, steps=6, targeted=targeted)


@pytest.mark.parametrize(("precision", "count"), [("float32", 800), ("bfloat16", 300)])
def test_attack_success_and_robust_accuracy_within_a_point(
    real: Photographs, source: Network, precision: Precision, count: int
) -> None:
    """Both shares differ by at most a point, and are far from 0 and 100 %; few single images have another outcome."""
    images, labels = real.test_images[:count], real.test_labels[:count]
    goal = (labels + 1) % 10
    outcomes, shares = {}, {}
    for name, model in (("plain", source), ("fast", FrozenNetwork(source, precision=precision))):
        towards = attack(model, images, goal, 0.25, targeted=True)
        away = attack(model, images, labels, 0.1, targeted=False)
        with torch.no_grad():
            success, robust = source(towards).argmax(1) == goal, source(away).argmax(1) == labels
        outcomes[name] = torch.stack([success, robust])
        shares[name] = outcomes[name].double().mean(dim=1) * 100
    assert ((shares["plain"] > 5) & (shares["plain"] < 95)).all()
    assert (shares["fast"] - shares["plain"]).abs().max() <= 1.0
    assert (outcomes["fast"] != outcomes["plain"]).double().mean() <= 0.02


def test_bfloat16_inversions_come_as_near(real: Photographs, source: Network) -> None:
    images, start = real.test_images[:100], real.images[:100]
    distances = {}
    for name, model in (("plain", source), ("fast", FrozenNetwork(source, precision="bfloat16"))):
        found = invert(model, start, images, step_size=0.1, steps=20)
        with torch.no_grad():
            distances[name] = (source.representation(found) - source.representation(images)).norm(dim=1).mean().item()
    with torch.no_grad():
        begun = (source.representation(start) - source.representation(images)).norm(dim=1).mean().item()
    assert distances["plain"] < 0.7 * begun
    assert abs(distances["fast"] - distances["plain"]) < 0.05 * begun


def test_networks_trained_on_d_det_are_as_good(real: Photographs, source: Network) -> None:
    """Networks trained on the D_det of each path differ in accuracy on D by less than the noise of the seeds."""
    goal = (real.labels + 1) % 10
    found: dict[str, list[float]] = {}
    for name, model in (("plain", source), ("fast", FrozenNetwork(source))):
        images = attack(model, real.images, goal, 2.0, targeted=True)
        found[name] = [
            100 * accuracy(train_network(images, goal, seed), InMemory(real.test_images), real.test_labels)
            for seed in (1, 2, 3)
        ]
    plain, fast = np.array(found["plain"]), np.array(found["fast"])
    noise = np.sqrt((plain.var(ddof=1) + fast.var(ddof=1)) / 3)
    assert abs(plain.mean() - fast.mean()) <= 2 * noise
    assert plain.min() > 15
