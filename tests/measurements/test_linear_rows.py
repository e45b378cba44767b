"""The rows of linear classifiers: each number beside one that torch or scikit-learn finds on the images themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn.functional import cross_entropy

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.measurements import linear_networks, linear_solutions
from robustfeatures.measurements.linear_rows import CLIPPED, NO_ATTACK, UNCLIPPED, Row
from robustfeatures.models import create
from robustfeatures.models.network import Network
from tests.conftest import Digits
from tests.measurements.conftest import split_of
from tests.runs import MemoryRun

EPS, DECAY = 0.15, 0.05
SPLITS = ("train", "test")


@pytest.fixture(scope="module")
def data(digits: Digits) -> dict[str, ImageDataset]:
    """Fives (class 0) and sevens (class 1), whose splits share no image."""

    def five_or_seven(rows: slice) -> ImageDataset:
        split = split_of(digits, rows)
        kept = np.isin(split.labels, (5, 7))
        labels = (split.labels[kept] == 7).astype(np.int64)
        return ImageDataset(split.images[kept], labels, {"source_index": np.flatnonzero(kept)}, ("5", "7"))

    return {"train": five_or_seven(slice(0, 900)), "test": five_or_seven(slice(900, 1797))}


def tensors(split: ImageDataset) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(split.float_images()), torch.from_numpy(split.labels)


@pytest.fixture(scope="module")
def networks(data: dict[str, ImageDataset]) -> dict[str, Network]:
    """Two networks that are not yet optimal. The rows of the head are opposite, as they are at the optimum."""
    found = {}
    mean, std = data["train"].channel_statistics()
    images, labels = tensors(data["train"])
    for seed, name in enumerate(("standard", "adversarial")):
        torch.manual_seed(seed)
        network = create("linear", num_classes=2, image_shape=(1, 8, 8))
        network.set_normalisation(torch.from_numpy(mean), torch.from_numpy(std))
        optimiser = torch.optim.SGD(network.parameters(), lr=0.05)
        for _ in range(20):
            optimiser.zero_grad()
            torch.autograd.backward(cross_entropy(network(images), labels))
            optimiser.step()
        with torch.no_grad():
            for parameter in network.parameters():
                half = (parameter[1] - parameter[0]) / 2
                parameter.copy_(torch.stack([-half, half]))
        found[name] = network.eval()
    return found


def find(rows: Sequence[Row], **wanted: object) -> float:
    (row,) = (row for row in rows if all(row[column] == value for column, value in wanted.items()))
    return float(row["value"])


def worst_images(network: Network, split: ImageDataset) -> dict[str, Tensor]:
    """By attack. The loss of a linear network grows along the sign of its gradient, whatever the image."""
    images, labels = tensors(split)
    images.requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(network(images), labels, reduction="sum"), images)
    unbounded = (images + EPS * gradient.sign()).detach()
    return {NO_ATTACK: images.detach(), CLIPPED: unbounded.clamp(0, 1), UNCLIPPED: unbounded}


@pytest.fixture(scope="module")
def rows(data: dict[str, ImageDataset], networks: dict[str, Network]) -> Sequence[Row]:
    return linear_networks.measure(MemoryRun({"data": data, **networks}), eps=EPS, decay=DECAY)


@pytest.mark.parametrize("name", ["standard", "adversarial"])
def test_accuracies_of_networks_are_those_on_the_worst_images(
    data: dict[str, ImageDataset], networks: dict[str, Network], rows: Sequence[Row], name: str
) -> None:
    seen = set()
    for split in SPLITS:
        for attack, images in worst_images(networks[name], data[split]).items():
            right = networks[name](images).argmax(dim=1) == torch.from_numpy(data[split].labels)
            expected = right.double().mean().item()
            found = find(rows, training=name, quantity="accuracy", split=split, attack=attack)
            assert found == pytest.approx(expected), (split, attack)
            wanted = {"training": name, "quantity": "accuracy", "split": split, "attack": attack}
            assert [row["total"] for row in rows if wanted.items() <= row.items()] == [len(data[split])]
            seen.add(expected)
    # They differ, so that none can stand for another; clean, both splits may be classified without an error.
    assert len(seen) >= 5


@pytest.mark.parametrize("name", ["standard", "adversarial"])
def test_weights_of_networks_are_the_gradients_of_their_margin(
    networks: dict[str, Network], rows: Sequence[Row], name: str
) -> None:
    image = torch.full((1, 1, 8, 8), 0.5, requires_grad=True)
    logits = networks[name](image)[0]
    (gradient,) = torch.autograd.grad(logits[1] - logits[0], image)
    weights = gradient.flatten().tolist()
    found = [find(rows, training=name, quantity="weight", pixel=pixel) for pixel in range(64)]
    assert found == pytest.approx(weights, rel=1e-4, abs=1e-6)
    l1_norm = find(rows, training=name, quantity="l1_norm")
    assert l1_norm == pytest.approx(gradient.abs().sum().item(), rel=1e-5)


@pytest.mark.parametrize(("name", "attack"), [("standard", NO_ATTACK), ("adversarial", CLIPPED)])
def test_objectives_of_networks_are_what_their_training_minimises(
    data: dict[str, ImageDataset], networks: dict[str, Network], rows: Sequence[Row], name: str, attack: str
) -> None:
    """Standard training sees the images, adversarial training the worst ones in [0, 1]; both have weight decay."""
    network = networks[name]
    images = worst_images(network, data["train"])[attack]
    loss = cross_entropy(network(images), torch.from_numpy(data["train"].labels)).item()
    length = sum(parameter.detach().square().sum().item() for parameter in network.parameters())
    expected = loss + DECAY / 2 * length
    assert find(rows, training=name, quantity="objective") == pytest.approx(expected, rel=1e-4)


def test_few_pixels_are_the_most_correlated_ones(data: dict[str, ImageDataset]) -> None:
    """A tenth of 64 pixels is six. |E[y x]| orders them; scikit-learn's own accuracy is that of the row."""
    found = linear_solutions.measure(MemoryRun({"data": data}), eps=EPS, decay=DECAY, fractions=(0.1,))
    train, test = (data[split].float_images().reshape(len(data[split]), -1).astype(float) for split in SPLITS)
    labels = data["train"].labels
    correlations = np.abs(((2 * labels - 1)[:, None] * train).mean(axis=0))
    chosen = correlations.argsort()[::-1][:6]

    def columns(images: NDArray[np.float64]) -> NDArray[np.float64]:
        # Weight decay holds for the bias too, so it is the weight of a column of ones.
        return np.column_stack([(images[:, chosen] - train.mean()) / train.std(), np.ones(len(images))])

    model = LogisticRegression(C=2 / (len(train) * DECAY), fit_intercept=False, tol=1e-8, max_iter=9999)
    model.fit(columns(train), labels)
    expected = model.score(columns(test), data["test"].labels)
    accuracy = find(found, training="standard", pixels=6, quantity="accuracy", split="test", attack=NO_ATTACK)
    assert accuracy == pytest.approx(expected)
    # A ball that leaves [0, 1] holds more images, so the best objective against it is larger.
    unclipped = find(found, training=linear_solutions.ADVERSARIAL_UNCLIPPED, quantity="objective")
    assert unclipped > find(found, training="adversarial", quantity="objective") + 1e-3
