"""Networks whose gradients or logits mislead an attack: none of them may look robust without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pyautoattack import AutoAttack as PyAutoAttack
from torch import Tensor, nn

from robustfeatures import evaluate
from robustfeatures.attacks import pgd
from robustfeatures.attacks.settings import NormName
from robustfeatures.errors import UserError

PGD: dict[str, Any] = {"kind": "pgd", "steps": 10, "relative_step_sizes": [0.25]}
CW: dict[str, Any] = {"kind": "cw-l2", "searches": 2, "steps": 20, "initial_constant": 1.0}
APGD: dict[str, Any] = {"kind": "autoattack", "parts": ["apgd-ce"]}
FAB: dict[str, Any] = {"kind": "autoattack", "parts": ["fab-t"]}
NOISE: dict[str, Any] = {"kind": "noise", "draws": 2}


class Changed(nn.Module):
    """A linear network of images that a function changes first."""

    def __init__(self, change: Callable[[Tensor], Tensor], pixels: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.change = change
        self.linear = nn.Linear(pixels, 2)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.change(images).flatten(1))
        return logits


def quantise(images: Tensor) -> Tensor:
    return images.mul(255).round().div(255)


@pytest.fixture
def half_black() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (40, 1, 8, 8)
    return torch.rand(shape, generator=generator) * (torch.rand(shape, generator=generator) > 0.5)


@pytest.mark.filterwarnings("ignore:Changed")
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_an_infinite_gradient_at_black_pixels_protects_no_class(half_black: Tensor, norm: NormName) -> None:
    """The gradient of sqrt(x) is infinite at 0. The bright pixels alone lead across the boundary."""
    model = Changed(torch.sqrt)
    labels = model(half_black).argmax(dim=1)
    assert set(labels.tolist()) == {0, 1}
    table = evaluate(model, half_black, labels, norm=norm, eps=[0.9 if norm == "linf" else 5.0], attacks=[PGD])
    assert table["correct"].tolist() == [40, 0]
    assert "40 of 40 images have no gradient at the image" in table.attrs["warnings"][0]
    with pytest.raises(UserError, match="model: its gradient at some images is NaN or infinite"):
        pgd(model, half_black, labels, norm="l2", eps=0.5, step_size=0.1, steps=2)


@pytest.mark.parametrize("attack", [PGD, CW, APGD, NOISE], ids=lambda attack: attack["kind"])
def test_nan_logits_in_the_ball_are_refused(attack: dict[str, Any]) -> None:
    grey = torch.full((4, 1, 8, 8), 0.405)
    # Not a number for darker pixels.
    model = Changed(lambda images: torch.sqrt(images - 0.4))
    # The other class is far away.
    torch.nn.init.constant_(model.linear.bias[:1], 10.0)
    labels = model(grey).argmax(dim=1)
    with pytest.raises(UserError, match="model: gives NaN logits for some images in the ball"):
        evaluate(model, grey, labels, eps=[2.0], attacks=[attack])


@pytest.mark.parametrize("attack", [PGD, CW, APGD], ids=lambda attack: attack["kind"])
def test_logits_without_a_gradient_are_refused(half_black: Tensor, attack: dict[str, Any]) -> None:
    model = Changed(torch.detach)
    labels = model(half_black).argmax(dim=1)
    with pytest.raises(UserError, match="model: its logits have no gradient"):
        evaluate(model, half_black, labels, eps=[0.5], attacks=[attack])
    assert len(evaluate(model, half_black, labels, eps=[0.5], attacks=[NOISE])) == 2
    # A gradient that leads elsewhere is none.
    elsewhere = Changed(lambda images: images.detach() + torch.zeros(1, requires_grad=True))
    with pytest.raises(UserError, match="model: its logits have no gradient"):
        evaluate(elsewhere, half_black, labels, eps=[0.5], attacks=[attack])


@pytest.mark.parametrize("attack", [PGD, CW, APGD, FAB], ids=["pgd", "cw-l2", "apgd-ce", "fab-t"])
def test_every_attack_by_gradient_warns_of_rounded_images(half_black: Tensor, attack: dict[str, Any]) -> None:
    model = Changed(quantise)
    labels = model(half_black).argmax(dim=1)
    with pytest.warns(UserWarning, match="40 of 40 images have no gradient at the image"):
        evaluate(model, half_black, labels, eps=[0.1], attacks=[attack])
    plain = Changed(lambda images: images)
    assert evaluate(plain, half_black, labels, eps=[0.1], attacks=[attack]).attrs["warnings"] == []


@pytest.mark.parametrize("attack", [PGD, CW, APGD, NOISE], ids=lambda attack: attack["kind"])
def test_a_network_that_works_in_place_is_attacked_as_one_that_does_not(
    half_black: Tensor, attack: dict[str, Any]
) -> None:
    before = half_black.clone()
    tables = []
    for change in (lambda images: images.sub_(0.5), lambda images: images - 0.5):
        model = Changed(change)
        labels = model(half_black.clone()).argmax(dim=1)
        tables.append(evaluate(model, half_black, labels, eps=[0.1, 0.5], attacks=[attack]))
    assert tables[0].equals(tables[1])
    assert half_black.equal(before)


def test_square_says_how_large_images_must_be() -> None:
    model, images = Changed(lambda images: images, pixels=16), torch.rand(4, 1, 4, 4)
    labels = model(images).argmax(dim=1)
    attacks = [{"kind": "autoattack", "parts": ["apgd-ce", "square"], "queries": 10}]
    with pytest.raises(UserError, match=r"^attacks: autoattack: square needs images of at least 5 x 5 pixels in l2$"):
        evaluate(model, images, labels, eps=[0.5], attacks=attacks)
    assert len(evaluate(model, images, labels, norm="linf", eps=[0.01], attacks=attacks)) == 2


SQUARE: dict[str, Any] = {"kind": "autoattack", "parts": ["square"], "queries": 2}


@pytest.mark.parametrize("shape", [(12, 12), (14, 14), (18, 18), (19, 19), (24, 24), (28, 40), (32, 48)])
def test_square_refuses_sizes_at_which_the_package_fails(shape: tuple[int, int]) -> None:
    model, images = Changed(lambda images: images, pixels=shape[0] * shape[1]), torch.rand(4, 1, *shape)
    labels = model(images).argmax(dim=1)
    with pytest.raises(
        UserError, match=f"^attacks: autoattack: square cannot attack images of {shape[0]} x {shape[1]}"
    ):
        evaluate(model, images, labels, eps=[0.5], attacks=[SQUARE])
    original = PyAutoAttack(model, norm="L2", eps=0.5, device=torch.device("cpu"))
    original.attacks_to_run, original.verbose = ["square"], False
    with pytest.raises(RuntimeError, match=" match"):
        original.run_standard_evaluation(images, labels)


@pytest.mark.parametrize("shape", [(5, 5), (8, 8), (9, 9), (13, 13), (23, 23), (28, 28), (40, 28), (8, 16), (16, 8)])
def test_square_attacks_other_sizes(shape: tuple[int, int]) -> None:
    model, images = Changed(lambda images: images, pixels=shape[0] * shape[1]), torch.rand(4, 1, *shape)
    labels = model(images).argmax(dim=1)
    assert len(evaluate(model, images, labels, eps=[0.5], attacks=[SQUARE])) == 2
