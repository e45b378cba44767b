"""What a source sees in a derived set: count_predictions image by image, and augmentation that mirrors."""

from __future__ import annotations

import numpy as np
import torch

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.measurements.attack_success import count_predictions, measure
from robustfeatures.models import create
from robustfeatures.models.network import Network
from tests.conftest import Digits
from tests.measurements.conftest import split_of
from tests.runs import MemoryRun


def test_the_counts_image_by_image() -> None:
    predicted = torch.tensor([1, 1, 2, 0, 0])
    labels = torch.tensor([1, 2, 2, 0, 1])
    before = torch.tensor([0, 1, 2, 0, 0])
    # Images 0, 1 and 4 have another target than class; 0 reaches it; 1, 2, 3 and 4 are taken for their class.
    assert count_predictions(predicted, labels, before) == {"images": 5, "targeted": 3, "reached": 1, "kept": 4}


def test_nothing_changes_without_augmentation(network: Network, digits: Digits) -> None:
    """Labels that are second choices are never reached; first choices are reached wherever they differ."""
    rows = slice(0, 300)
    with torch.no_grad():
        first, second = network(digits.images[rows]).topk(2, dim=1).indices.T
    labels = digits.labels[rows]
    for given, reached in ((first, int((first != labels).sum())), (second, 0)):
        data = {"train": split_of(digits, rows, given.numpy())}
        plain, augmented = measure(
            MemoryRun({"data": data, "source": network}), precision="float32", augmentation={"crop_padding": 0}, seed=0
        )
        assert [row["augmentation"] for row in (plain, augmented)] == ["none", "augmented"]
        assert {**plain, "augmentation": ""} == {**augmented, "augmentation": ""}
        assert plain["targeted"] == int((given != labels).sum())
        assert plain["reached"] == reached
        assert plain["kept"] == int((first == labels).sum())


def test_mirroring_undoes_half_of_what_left_and_right_tell() -> None:
    """A network that tells left from right is wrong on mirrored images. Each is mirrored with probability 1/2."""
    network = create("linear", num_classes=2, image_shape=(1, 8, 8))
    side = torch.tensor([1.0] * 4 + [-1.0] * 4).repeat(8)
    with torch.no_grad():
        network.head.weight.copy_(torch.stack([side, -side]))
        network.head.bias.zero_()
    labels = np.arange(1000) % 2
    images = np.zeros((1000, 1, 8, 8), np.float32)
    images[labels == 0, :, :, :4] = 1
    images[labels == 1, :, :, 4:] = 1
    data = ImageDataset(images, labels, {"source_index": np.arange(1000)}, ("left", "right"))
    inputs = {"data": {"train": data}, "source": network}
    plain, augmented = measure(MemoryRun(inputs), precision="float32", augmentation={"flip": True}, seed=0)
    assert plain["kept"] == 1000
    assert plain["targeted"] == augmented["targeted"] == 0
    # Five standard deviations of a binomial of 1000.
    assert abs(int(augmented["kept"]) - 500) < 5 * np.sqrt(250)
    again = measure(MemoryRun(inputs), precision="float32", augmentation={"flip": True}, seed=1)[1]
    assert again["kept"] != augmented["kept"]
