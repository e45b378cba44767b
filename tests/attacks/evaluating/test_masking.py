"""Networks that hide their gradients raise the warnings that name the sign; an honest one raises none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from robustfeatures.attacks.evaluating.evaluation import EvaluatedSplit, count_diagnostics, evaluate_block
from robustfeatures.attacks.evaluating.settings import PGD, Attack, AutoAttack, Evaluation, Noise
from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.experiments.shared.masking import SIGNS, drop_noise_before_gradients, find_warnings
from robustfeatures.models.network import Network
from tests.conftest import Digits

ATTACKS = (PGD(kind="pgd", steps=10, relative_step_sizes=(0.2,), random_starts=1), Noise(kind="noise", draws=20))


class Behind(nn.Module):
    """A network with a function before its input and another one after its logits."""

    def __init__(
        self,
        network: nn.Module,
        before: Callable[[Tensor], Tensor] = lambda images: images,
        after: Callable[[Tensor], Tensor] = lambda logits: logits,
    ) -> None:
        super().__init__()
        self.network, self.before, self.after = network, before, after

    def forward(self, images: Tensor) -> Tensor:
        return self.after(self.network(self.before(images)))


class Backwards(torch.autograd.Function):
    """Returns the images unchanged, with gradients of the wrong sign."""

    @staticmethod
    def forward(context: Any, images: Tensor) -> Tensor:
        return images.view_as(images)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        return -gradients[0]


class FlatAtImages(torch.autograd.Function):
    """Returns the images unchanged, without a gradient where all pixels have one of 256 levels, as images have."""

    @staticmethod
    def forward(context: Any, images: Tensor) -> Tensor:
        levels = 255 * images
        context.flat = ((levels - levels.round()).abs() < 1e-3).flatten(1).all(dim=1)
        return images.view_as(images)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * ~context.flat.view(-1, 1, 1, 1)


def quantise(images: Tensor) -> Tensor:
    """Three levels of grey."""
    return (2 * images).round() / 2


def diagnose(network: nn.Module, digits: Digits, attacks: tuple[Attack, ...] = ATTACKS) -> list[str]:
    """The warnings on an evaluation of 150 images."""
    parameters = Evaluation(split="test", norm="l2", attacks=attacks, eps=(0.0, 0.3, 0.6))
    found = evaluate_block(
        EvaluatedSplit(network, InMemory(digits.images), digits.labels, 10), torch.arange(1300, 1450), parameters
    )
    diagnostics = pd.DataFrame(count_diagnostics(parameters, [found]))
    compared = drop_noise_before_gradients(diagnostics, [attack.name for attack in attacks])
    return find_warnings(compared.assign(row="D", seed=0))


def test_noise_that_comes_first_silences_no_other_attack() -> None:
    sign = "broken without gradients"
    names = ["noise-20", "autoattack-square-100", "noise-30", "pgd-10", "autoattack", "noise-50"]
    diagnostics = pd.DataFrame({"attack": names, "diagnostic": sign, "count": 9, "total": 100})
    assert list(drop_noise_before_gradients(diagnostics, names)["attack"]) == names[3:]


def test_an_honest_network_raises_none(network: Network, digits: Digits) -> None:
    assert diagnose(FrozenNetwork(network), digits) == []


@pytest.mark.parametrize("factor", [5.0, 1e4])
def test_large_logits_hide_nothing(network: Network, digits: Digits, factor: float) -> None:
    plain = FrozenNetwork(network)
    large = Behind(plain, after=lambda logits: factor * logits)
    assert diagnose(large, digits) == []
    parameters = Evaluation(split="test", norm="l2", attacks=ATTACKS[:1], eps=(0.0, 0.3, 0.6))
    rows = torch.arange(1300, 1450)
    counts = [
        evaluate_block(EvaluatedSplit(each, InMemory(digits.images), digits.labels, 10), rows, parameters)
        .robust[0, 0]
        .sum(axis=1)
        for each in (plain, large)
    ]
    assert abs(counts[0] - counts[1]).max() <= 5, counts


@pytest.mark.parametrize(
    ("masked", "signs"),
    [
        (lambda network: Behind(network, before=quantise), {"no gradient", "broken without gradients"}),
        (lambda network: Behind(network, after=lambda logits: (1e4 * logits).softmax(dim=1)), {"no gradient"}),
        (lambda network: Behind(network, before=Backwards.apply), {"loss not raised"}),
        (
            lambda network: Behind(network, before=FlatAtImages.apply),
            {"no gradient", "broken from a random start alone"},
        ),
    ],
    ids=["quantised input", "saturated probabilities", "gradients backwards", "flat at the images"],
)
def test_masked_gradients_are_seen(
    network: Network,
    digits: Digits,
    tmp_path: Path,
    masked: Callable[[nn.Module], nn.Module],
    signs: set[str],
) -> None:
    raised = diagnose(masked(FrozenNetwork(network)), digits)
    for sign in signs:
        assert any(SIGNS[sign][1] in warning for warning in raised), (sign, raised)
    assert all(warning.startswith("D: gradients may be masked") for warning in raised)


def test_noise_that_no_attack_by_gradient_precedes_is_no_sign(network: Network, digits: Digits) -> None:
    masked = Behind(FrozenNetwork(network), before=quantise)
    gradients, noise = ATTACKS
    sign = SIGNS["broken without gradients"][1]
    assert any(sign in warning for warning in diagnose(masked, digits, (gradients, noise)))
    assert not any(sign in warning for warning in diagnose(masked, digits, (noise,)))
    assert not any(sign in warning for warning in diagnose(masked, digits, (noise, gradients)))


@pytest.mark.parametrize(
    ("parts", "diagnosed"), [(("apgd-ce", "square"), True), (("square", "apgd-ce"), False), (("square",), False)]
)
def test_square_is_a_sign_only_after_attacks_by_gradient(
    network: Network, digits: Digits, parts: tuple[Any, ...], diagnosed: bool
) -> None:
    parameters = Evaluation(
        split="test", norm="l2", attacks=(AutoAttack(kind="autoattack", parts=parts, queries=5),), eps=(0.0, 0.3)
    )
    split = EvaluatedSplit(FrozenNetwork(network), InMemory(digits.images), digits.labels, 10)
    found = evaluate_block(split, torch.arange(1300, 1310), parameters)
    names = [row["diagnostic"] for row in count_diagnostics(parameters, [found])]
    assert ("broken without gradients" in names) == diagnosed


def test_networks_of_one_row_are_told_apart() -> None:
    """Pooled, three of 500 images would be no sign."""
    rows = [
        {"row": "D", "seed": 0, "eps": 0.5, "attack": "a", "diagnostic": "no gradient", "total": 100} | each
        for each in (
            *({"architecture": name, "count": 0} for name in ("vgg16", "resnet18", "resnet50", "densenet121")),
            {"architecture": "small-cnn", "count": 3},
        )
    ]
    (warning,) = find_warnings(pd.DataFrame(rows))
    assert warning.startswith("D, small-cnn: gradients may be masked")
    assert "3 of 100 images" in warning
    # Rows of other needs do not have the column.
    (warning,) = find_warnings(pd.DataFrame([{**rows[0], "architecture": None, "count": 5}, *rows[1:4]]))
    assert warning.startswith("D: gradients may be masked")


def test_seeds_are_summed_and_the_worst_radius_is_named() -> None:
    rows = [
        {"row": "D", "seed": seed, "eps": eps, "attack": "a", "diagnostic": "no gradient", "count": count, "total": 100}
        for eps, counts in ((0.25, (1, 1)), (0.4, (2, 1)), (0.5, (3, 1)), (0.75, (2, 1)))
        for seed, count in enumerate(counts)
    ]
    (warning,) = find_warnings(pd.DataFrame(rows))
    assert "4 of 200 images have no gradient at the image (a, eps 0.5)" in warning
    # One in a hundred raises none, and neither do two images of few.
    assert find_warnings(pd.DataFrame(rows[:2])) == []
    assert find_warnings(pd.DataFrame([{**rows[0], "count": 2, "total": 10}])) == []
    assert find_warnings(pd.DataFrame()) == []


def test_one_image_alone_can_raise_a_warning() -> None:
    found = pd.DataFrame(
        [{"row": "net", "seed": 0, "label_shift": 0, "eps": 0.5, "attack": "pgd-10", "diagnostic": "no gradient"}]
    )
    assert find_warnings(found.assign(count=1, total=1))
    assert not find_warnings(found.assign(count=2, total=100))
