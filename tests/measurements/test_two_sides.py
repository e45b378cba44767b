"""Networks asked for one of two sides: read-outs by hand, and a linear network whose robust accuracy is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from robustfeatures.attacks import pgd
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.errors import UserError
from robustfeatures.measurements.two_sides import (
    EITHER,
    LARGEST,
    OWN,
    READ_OUT,
    SUMMED,
    assign_sides,
    margins,
    measure,
)
from robustfeatures.models import create
from robustfeatures.models.network import Network
from tests.attacks.evaluating.test_evaluating import HostReads
from tests.conftest import Digits
from tests.runs import MemoryRun

PARITY = [["0", "2", "4", "6", "8"], ["1", "3", "5", "7", "9"]]
EPS = [0.0, 0.02, 0.05, 0.1, 0.15]
SETTINGS: dict[str, Any] = {"norm": "l2", "eps": EPS, "steps": 20, "relative_step_size": 0.1, "precision": "float32"}


def test_read_outs_by_hand() -> None:
    logits = torch.tensor([[3.0, 1.0, 1.5, 0.0], [0.0, 2.0, -3.0, 1.0]])
    side = assign_sides([["a", "c"], ["b", "d"]], ["a", "b", "c", "d"])
    assert side.tolist() == [1, -1, 1, -1]
    labels = torch.tensor([2, 0])
    assert margins(logits, labels, side, SUMMED).tolist() == [4.5 - 1, -3 - 3]
    assert margins(logits, labels, side, LARGEST).tolist() == [3 - 1, 0 - 2]
    assert margins(logits, torch.tensor([1, 3]), side, SUMMED).tolist() == [1 - 4.5, 3 + 3]


def test_read_outs_ask_the_device_nothing() -> None:
    """An attack reads them at every step."""
    logits, labels = torch.randn(20, 4, requires_grad=True), torch.arange(20) % 4
    side = assign_sides([["a", "c"], ["b", "d"]], ["a", "b", "c", "d"])
    with HostReads() as mode:
        for read_out in (SUMMED, LARGEST):
            torch.autograd.grad(margins(logits, labels, side, read_out).sum(), logits)
    assert mode.count == 0


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        ([["cat"], ["dgo"]], r"^sides: there is no class 'dgo' \(did you mean 'dog'\?\)"),
        ([["cat"], []], r"^sides: the class 'dog' is on neither"),
        ([["cat"], ["cat", "dog"]], r"^sides: the class 'cat' stands twice"),
    ],
)
def test_sides_must_fit_the_classes(sides: list[list[str]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        assign_sides(sides, ["cat", "dog"])


def grey(digits: Digits, labels: np.ndarray, classes: tuple[str, ...]) -> ImageDataset:
    """Digits of little contrast, so that no attack comes near the ends of the pixel range."""
    images = 0.35 + 0.3 * digits.images[1000:1300].numpy()
    return ImageDataset(images, labels, {"source_index": np.arange(len(images))}, classes)


@pytest.fixture
def linear(digits: Digits) -> Network:
    """The logistic regression of the grey digits, as a network."""
    from sklearn.linear_model import LogisticRegression

    images = 0.35 + 0.3 * digits.images[:1000].flatten(1).numpy()
    found = LogisticRegression(C=100.0, max_iter=200).fit(images, digits.labels[:1000].numpy())
    network = create("linear", num_classes=10, image_shape=(1, 8, 8))
    with torch.no_grad():
        network.head.weight.copy_(torch.from_numpy(found.coef_))
        network.head.bias.copy_(torch.from_numpy(found.intercept_))
    return network


def correct(rows: Any, read_out: str, attack: str) -> list[int]:
    return [row["correct"] for row in rows if row["read_out"] == read_out and row["attack"] == attack]


def test_a_linear_network_withstands_up_to_its_distance(digits: Digits, linear: Network) -> None:
    """Summed logits are linear, so an image withstands eps just if it is further than eps from their zero."""
    labels = digits.labels[1000:1300].numpy()
    data = grey(digits, labels, tuple(map(str, range(10))))
    rows = measure(MemoryRun({"data": {"test": data}, "model": linear}), sides=PARITY, **SETTINGS)
    sign = np.where(labels % 2 == 0, 1.0, -1.0)
    way = np.where(np.arange(10) % 2 == 0, 1.0, -1.0)
    weight = way @ linear.head.weight.detach().double().numpy()
    bias = way @ linear.head.bias.detach().double().numpy()
    distance = sign * (data.images.reshape(300, 64) @ weight + bias) / np.linalg.norm(weight)
    # Were a distance within rounding of a radius, either count would do.
    assert np.abs(distance[:, None] - np.array(EPS)).min() > 1e-6
    expected = [int((distance > eps).sum()) for eps in EPS]
    assert expected[0] > 200
    assert 0 < expected[-1] < 0.9 * expected[0]
    assert correct(rows, SUMMED, READ_OUT) == expected
    # The best attack on the read-out leaves nothing for the other to find.
    assert correct(rows, SUMMED, EITHER) == expected
    assert {row["total"] for row in rows} == {300}


def test_in_linf_a_linear_network_withstands_up_to_its_distance_in_l1(digits: Digits, linear: Network) -> None:
    """The sum of logits changes by at most eps times the l1 norm of its gradient."""
    labels = digits.labels[1000:1300].numpy()
    data = grey(digits, labels, tuple(map(str, range(10))))
    radii = [eps / 8 for eps in EPS]
    asked = {**SETTINGS, "norm": "linf", "eps": radii}
    rows = measure(MemoryRun({"data": {"test": data}, "model": linear}), sides=PARITY, **asked)
    way = np.where(np.arange(10) % 2 == 0, 1.0, -1.0)
    weight = way @ linear.head.weight.detach().double().numpy()
    margin = data.images.reshape(300, 64) @ weight + way @ linear.head.bias.detach().double().numpy()
    distance = np.where(labels % 2 == 0, 1.0, -1.0) * margin / np.abs(weight).sum()
    assert np.abs(distance[:, None] - np.array(radii)).min() > 1e-6
    expected = [int((distance > eps).sum()) for eps in radii]
    assert expected[-1] < 0.9 * expected[0]
    assert correct(rows, SUMMED, READ_OUT) == expected


def test_the_own_loss_is_attacked_with_pgd(digits: Digits, linear: Network) -> None:
    labels = digits.labels[1000:1300]
    data = grey(digits, labels.numpy(), tuple(map(str, range(10))))
    rows = measure(MemoryRun({"data": {"test": data}, "model": linear}), sides=PARITY, **SETTINGS)
    side, images = assign_sides(PARITY, list(data.class_names)), torch.from_numpy(data.float_images())
    for read_out in (SUMMED, LARGEST):
        held, expected = torch.ones(300, dtype=torch.bool), []
        for eps in EPS:
            for steps in range(21):
                moved = pgd(linear, images, labels, norm="l2", eps=eps, step_size=0.1 * eps, steps=steps)
                held &= margins(linear(moved), labels, side, read_out) > 0
            expected.append(int(held.sum()))
        assert expected[-1] < 0.98 * expected[0]
        # The network is folded before it is attacked, which rounds otherwise.
        assert correct(rows, read_out, OWN) == pytest.approx(expected, abs=1)


def test_either_attack_is_the_worse_of_both_and_grows_with_the_radius(digits: Digits, linear: Network) -> None:
    data = grey(digits, digits.labels[1000:1300].numpy(), tuple(map(str, range(10))))
    rows = measure(MemoryRun({"data": {"test": data}, "model": linear}), sides=PARITY, **SETTINGS)
    for read_out in (SUMMED, LARGEST):
        each = {attack: correct(rows, read_out, attack) for attack in (OWN, READ_OUT, EITHER)}
        assert all(counts == sorted(counts, reverse=True) for counts in each.values())
        assert all(either <= min(both) for either, *both in zip(each[EITHER], each[OWN], each[READ_OUT], strict=True))
        # Clean, nothing is attacked.
        assert len({counts[0] for counts in each.values()}) == 1
        # Leaving a class for another of the same side is no error.
        assert each[READ_OUT][-1] < each[OWN][-1]


def test_the_order_of_the_radii_does_not_matter(digits: Digits, linear: Network) -> None:
    data = grey(digits, digits.labels[1000:1300].numpy(), tuple(map(str, range(10))))
    inputs = {"data": {"test": data}, "model": linear}
    rising, falling = (
        measure(MemoryRun(inputs), sides=PARITY, **{**SETTINGS, "eps": radii}) for radii in (EPS, EPS[::-1])
    )
    assert falling == rising


def test_what_is_wrong_at_a_small_radius_stays_wrong_at_larger_ones(
    digits: Digits, linear: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Summed logits are replaced by numbers that are wrong at the first of two radii and right at the second."""
    data = grey(digits, digits.labels[1000:1300].numpy(), tuple(map(str, range(10))))
    run = MemoryRun({"data": {"test": data}, "model": linear})

    def scripted(logits: torch.Tensor, labels: torch.Tensor, side: torch.Tensor, read_out: str) -> torch.Tensor:
        # An attack asks with gradients, the count of right images without. A radius is reported when it is done.
        if logits.requires_grad:
            return logits.sum(dim=1)
        is_wrong = read_out == SUMMED and not run.reports
        return torch.full((len(labels),), -1.0 if is_wrong else 1.0)

    monkeypatch.setattr("robustfeatures.measurements.two_sides.margins", scripted)
    rows = measure(run, sides=PARITY, **{**SETTINGS, "eps": [0.1, 0.2]})
    assert correct(rows, SUMMED, OWN) == [0, 0]
    assert correct(rows, LARGEST, OWN) == [300, 300]


def test_of_two_classes_there_is_one_read_out_and_one_attack(digits: Digits) -> None:
    torch.manual_seed(0)
    network = create("linear", num_classes=2, image_shape=(1, 8, 8))
    data = grey(digits, digits.labels[1000:1300].numpy() % 2, ("0", "1"))
    inputs = {"data": {"test": data}, "model": network}
    rows = measure(MemoryRun(inputs), sides=[["0"], ["1"]], **SETTINGS)
    assert [(row["read_out"], row["attack"], row["eps"]) for row in rows] == [(SUMMED, READ_OUT, eps) for eps in EPS]
