"""Numbers for what the eye sees, against closed forms; the measurements, on networks whose gradients are known."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.measurements import interpolations, loss_gradients
from robustfeatures.measurements.perception import (
    alignment,
    class_means,
    density,
    detour,
    interpolate_probabilities,
    low_frequency_share,
    transition_width,
)
from robustfeatures.models import create
from robustfeatures.models.network import Network
from tests.conftest import Digits
from tests.runs import MemoryRun


def test_alignment() -> None:
    one = torch.randn(3, 2, 4, 4)
    across = one.clone()
    across[:, 0], across[:, 1] = -one[:, 1], one[:, 0]
    torch.testing.assert_close(alignment(one, 3 * one), torch.ones(3))
    torch.testing.assert_close(alignment(one, -one), -torch.ones(3))
    torch.testing.assert_close(alignment(one, across), torch.zeros(3), atol=1e-6, rtol=0)
    assert alignment(one, 0 * one).isnan().all()


def test_low_frequencies() -> None:
    row = torch.arange(8, dtype=torch.float64)
    constant = torch.ones(1, 3, 8, 8, dtype=torch.float64)
    checkered = (row[:, None] + row).remainder(2).sub(0.5).expand(1, 1, 8, 8)
    # One cycle over the image: an eighth of a cycle per pixel, a quarter of the highest frequency.
    wave = torch.cos(2 * torch.pi * row / 8).expand(1, 1, 8, 8)
    for image, cutoff, expected in (
        (constant, 0.1, 1.0),
        (checkered, 0.9, 0.0),
        (wave, 0.26, 1.0),
        (wave, 0.24, 0.0),
        (constant[:, :1] + wave, 0.1, 2 / 3),
    ):
        assert low_frequency_share(image, cutoff).item() == pytest.approx(expected, abs=1e-12)


def test_white_noise_has_its_energy_everywhere() -> None:
    """13 of 64 frequencies of 8 by 8 pixels are at most half the highest: 5 on each axis, less one, and 4 between."""
    noise = torch.randn(4000, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    # A share of 64 squares deviates by less than 0.1 from its mean, the mean of 4000 by less than 0.002 (one sigma).
    assert low_frequency_share(noise, 0.5).mean().item() == pytest.approx(13 / 64, abs=0.005)


def test_density() -> None:
    single = torch.zeros(1, 1, 4, 4)
    single[0, 0, 1, 2] = -3.0
    assert density(single).item() == pytest.approx(1 / 4)
    assert density(torch.full((1, 1, 4, 4), -2.0)).item() == pytest.approx(1.0)


def test_widths_and_detours() -> None:
    points = 21
    even = torch.linspace(0, 1, points, dtype=torch.float64)
    jump = (torch.arange(points) > 10).double()
    there_and_back = torch.cat([even[:11], even[:10].flip(0)])
    resting = torch.full((points,), 0.5, dtype=torch.float64)
    paths = torch.stack([even, 1 - even, jump, there_and_back, resting], dim=1)
    # From 0 to 1/2 and back: 0.4 of every 0.5 lies above one tenth.
    torch.testing.assert_close(
        transition_width(paths), torch.tensor([0.8, 0.8, 0.8 / 20, 0.8, 1.0], dtype=torch.float64)
    )
    torch.testing.assert_close(detour(paths), torch.tensor([0, 0, 0, 1, 0], dtype=torch.float64))


def test_class_means(digits: Digits) -> None:
    labels = digits.labels[:300].numpy()
    images = (digits.images[:300] * 255).round().to(torch.uint8).numpy()
    dataset = ImageDataset(images, labels, {}, tuple("0123456789"))
    expected = np.stack([images[labels == label].mean(axis=0) / 255 for label in range(10)])
    np.testing.assert_allclose(class_means(dataset).numpy(), expected, atol=1e-6)


@pytest.fixture(scope="module")
def line() -> Network:
    """A linear network of two classes: the gradient of its loss is known but for a factor."""
    torch.manual_seed(0)
    network = create("linear", num_classes=2, image_shape=(1, 4, 4))
    network.set_normalisation(torch.tensor([0.4]), torch.tensor([0.2]))
    return network.eval()


@pytest.fixture(scope="module")
def images() -> dict[str, ImageDataset]:
    draw = np.random.default_rng(0)

    def split(count: int) -> ImageDataset:
        labels = np.arange(count) % 2
        images = np.clip(draw.normal(0.4 + 0.2 * labels[:, None, None, None], 0.1, (count, 1, 4, 4)), 0, 1)
        return ImageDataset(images.astype(np.float32), labels, {"source_index": np.arange(count)}, ("a", "b"))

    return {"train": split(40), "test": split(6)}


def test_gradients_of_a_linear_network(line: Network, images: dict[str, ImageDataset]) -> None:
    """They point from the label's row of the head to the other's, whatever the image."""
    rows = loss_gradients.measure(MemoryRun({"data": images, "standard": line}), cutoff=0.5)
    apart = (line.head.weight[1] - line.head.weight[0]).detach().double().view(1, 1, 4, 4)
    means = class_means(images["train"])
    # For label 1 both the gradient and the way to the other class turn round.
    cosine = alignment(apart, (means[1] - means[0])[None]).item()
    assert [row["model"] for row in rows] == ["standard"] * 6
    assert [row["alignment"] for row in rows] == pytest.approx([cosine] * 6, abs=1e-6)
    assert [row["density"] for row in rows] == pytest.approx([density(apart).item()] * 6, rel=1e-6)
    low = low_frequency_share(apart, 0.5).item()
    assert [row["low_frequency"] for row in rows] == pytest.approx([low] * 6, rel=1e-6)


def test_gradients_are_compared_with_the_likeliest_other_class() -> None:
    """Three classes whose order the biases fix: an image of class 0 is next to class 1, not to class 2."""
    network = create("linear", num_classes=3, image_shape=(1, 4, 4)).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        network.head.weight.mul_(0.01)
        network.head.bias.copy_(torch.tensor([3.0, 2.0, 0.0]))
    draw = np.random.default_rng(0)

    def split(labels: np.ndarray) -> ImageDataset:
        images = draw.random((len(labels), 1, 4, 4), dtype=np.float32)
        return ImageDataset(images, labels, {"source_index": np.arange(len(labels))}, ("a", "b", "c"))

    data = {"train": split(np.arange(30) % 3), "test": split(np.zeros(2, dtype=np.int64))}
    rows = loss_gradients.measure(MemoryRun({"data": data, "standard": network}), cutoff=0.5)
    images = torch.from_numpy(data["test"].float_images()).double().requires_grad_(True)
    loss = functional.cross_entropy(copy.deepcopy(network).double()(images), torch.zeros(2, dtype=torch.int64))
    (gradients,) = torch.autograd.grad(loss, images)
    train_images, labels = data["train"].float_images(), data["train"].labels
    mean = [train_images[labels == label].mean(axis=0, dtype=np.float64).ravel() for label in range(3)]

    def cosines(other: int) -> list[float]:
        way = mean[other] - mean[0]
        flat = gradients.flatten(1).numpy()
        return list(flat @ way / (np.linalg.norm(flat, axis=1) * np.linalg.norm(way)))

    assert [row["alignment"] for row in rows] == pytest.approx(cosines(1), abs=1e-6)
    assert np.abs(np.subtract(cosines(1), cosines(2))).min() > 0.01


def test_the_way_to_examples_of_a_linear_network(line: Network, images: dict[str, ImageDataset]) -> None:
    """Its logits are even along a line, so the places where a probability passes one and nine tenths are known."""
    test = images["test"]
    apart = (line.head.weight[1] - line.head.weight[0]).detach().numpy().reshape(1, 1, 4, 4)
    towards = np.where(test.labels == 1, -1, 1)[:, None, None, None] * np.sign(apart)
    moved = np.clip(test.images[np.arange(6)] + 0.5 * towards, 0, 1).astype(np.float32)
    # The last one stays as it is.
    moved[5] = test.images[np.array([5])]
    examples = ImageDataset(moved, test.labels, test.provenance, ("a", "b"))
    run = MemoryRun({"data": images, "standard": line, "examples-standard": {"test": examples}})
    points = 401
    rows = interpolations.measure(run, examples={"standard": "examples-standard"}, cutoff=0.5, points=points)
    with torch.no_grad():
        logits = [line(torch.from_numpy(at)).double() for at in (test.float_images(), moved)]
    means = class_means(images["train"])
    for number, row in enumerate(rows):
        begin, end = (float(at[number, 1] - at[number, 0]) for at in logits)
        reached = int(end > 0)
        assert row["reached"] == reached
        if reached == row["label"]:
            assert np.isnan(row["width"])  # type: ignore[call-overload]
            continue
        begin, end = (begin, end) if reached else (-begin, -end)
        low, high = ((np.log(share / (1 - share)) - begin) / (end - begin) for share in (0.1, 0.9))
        width = min(high, 1.0) - max(low, 0.0)
        assert row["width"] == pytest.approx(width, abs=2 / points)
        assert row["detour"] == pytest.approx(0.0, abs=1e-6)
        change = torch.from_numpy(moved[number] - test.float_images()[number]).double()
        way = means[reached] - means[int(test.labels[number])]
        cosine = float((change * way).sum() / (change.norm() * way.norm()))
        assert row["alignment"] == pytest.approx(cosine, abs=1e-6)
        assert row["low_frequency"] == pytest.approx(low_frequency_share(change[None], 0.5).item(), rel=1e-5)
    assert sum(row["reached"] != row["label"] for row in rows) >= 2
    assert all(row["image"] == number for number, row in enumerate(rows))


def test_probabilities_between(line: Network) -> None:
    first, last = torch.rand(2, 1, 4, 4), torch.rand(2, 1, 4, 4)
    found = interpolate_probabilities(line, first, last, 3)
    for place, images in enumerate((first, (first + last) / 2, last)):
        torch.testing.assert_close(found[place], line(images).softmax(dim=1).detach())
