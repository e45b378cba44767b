"""The nearest image of another class: against brute force, and where it is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from robustfeatures.attacks.settings import NormName
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.measurements import nearest_other_class
from robustfeatures.measurements.nearest_other_class import distances_to_other_classes, measure
from tests.conftest import Digits
from tests.measurements.conftest import split_of
from tests.runs import MemoryRun


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_the_nearest_is_that_of_brute_force(norm: NormName, digits: Digits, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = digits.images[:150], digits.labels[:150]
    pixels = images.double().numpy().reshape(150, -1)
    orders = {"l2": 2, "linf": np.inf}
    expected = [
        min(
            np.linalg.norm(pixels[row] - pixels[other], ord=orders[norm])
            for other in range(150)
            if labels[other] != labels[row]
        )
        for row in range(150)
    ]
    # Blocks of 7 rows, the last of which is smaller.
    monkeypatch.setattr(nearest_other_class, "BLOCK_DISTANCES", 7 * 150)
    blocks = list(distances_to_other_classes(images, labels, norm))
    assert [len(block) for block in blocks] == [7] * 21 + [3]
    np.testing.assert_allclose(torch.cat(blocks).numpy(), expected, rtol=1e-12, atol=1e-12)


def test_the_nearest_of_near_images_is_exact() -> None:
    """Two bright images 1e-3 apart: in float32, the products of their 3072 pixels lose this difference."""
    images = torch.ones(2, 3, 32, 32, dtype=torch.float64)
    images[1, 0, 0, 0] -= 1e-3
    (distances,) = distances_to_other_classes(images, torch.tensor([0, 1]), "l2")
    np.testing.assert_allclose(distances.numpy(), 1e-3, rtol=1e-4)


# The least distances to the other class are 0.5, 1.5, 0.5, 0.5 in L2, and 0.25, 0.75, 0.5, 0.25 in Linf.
@pytest.mark.parametrize(("norm", "shares"), [("l2", [0.0, 0.75, 1.0]), ("linf", [0.5, 0.75, 1.0])])
def test_images_within_twice_a_radius(norm: NormName, shares: list[float]) -> None:
    black, white, corner, grey = (
        np.zeros((1, 2, 2)),
        np.ones((1, 2, 2)),
        np.zeros((1, 2, 2)),
        np.full((1, 2, 2), 0.25),
    )
    corner[0, 0, 0] = 0.5
    images = np.stack([black, white, corner, grey]).astype(np.float32)
    data = ImageDataset(images, np.array([0, 0, 1, 1]), {"source_index": np.arange(4)}, ("a", "b"))
    rows = measure(MemoryRun({"data": {"train": data}}), norm=norm, radii=[0.125, 0.25, 0.75])
    assert [row["within"] for row in rows] == shares


def test_rows_count_the_images_of_the_train_split(digits: Digits) -> None:
    run = MemoryRun({"data": {"train": split_of(digits, slice(0, 60))}})
    none, half, every = measure(run, norm="l2", radii=[0.1, 0.9, 4.0])
    assert none == {"radius": 0.1, "within": 0.0, "images": 60}
    assert 0 < half["within"] < every["within"] == 1.0
    assert run.reports[-1] == (60, 60)
