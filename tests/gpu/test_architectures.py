"""Every registered network trains and is attacked with deterministic kernels, and has the same bits again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.settings import Precision
from robustfeatures.models import create
from robustfeatures.models.registry import NETWORKS
from robustfeatures.training.adversary import Attacker
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Adversary, Training
from tests.models.test_architectures import CIFAR, MNIST, NARROW

ADVERSARY = Adversary(norm="l2", eps=0.5, step_size=0.2, steps=2)
SETTINGS = Training(epochs=2, batch_size=4, learning_rate=0.01, weight_decay=5e-4, adversary=ADVERSARY)
SHAPES = {"mnist-cnn": MNIST, "resnet50-imagenet": (3, 64, 64)}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("architecture", NETWORKS)
def test_adversarial_training_has_the_same_bits_again(
    device: torch.device, architecture: str, precision: Precision
) -> None:
    shape = SHAPES.get(architecture, CIFAR)
    images, labels = torch.rand(8, *shape).to(device), torch.arange(8, device=device) % 7

    def work() -> dict[str, Tensor]:
        torch.manual_seed(0)
        network = create(architecture, num_classes=7, image_shape=shape, width=NARROW[architecture]).to(device)
        attacker = Attacker(network, ADVERSARY, precision)
        train(network, InMemory(images), labels, SETTINGS, seed=0, precision=precision, perturbation=attacker)
        return network.state_dict()

    first, second = work(), work()
    assert all(torch.equal(values, second[name]) for name, values in first.items())
