"""Attacks on any module: what its representation is, and which images are refused."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import robustfeatures
from robustfeatures import attacks
from robustfeatures.attacks import attack_representation, invert, pgd
from robustfeatures.attacks.inversion import invert as invert_network
from robustfeatures.attacks.representation_pgd import representation_pgd
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.errors import UserError
from robustfeatures.models.network import Network


class Plain(nn.Module):
    """A convolutional network without a method `representation`, and with a second head that is not called last."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            OrderedDict(conv=nn.Conv2d(1, 6, 3), relu=nn.ReLU(), pool=nn.AdaptiveAvgPool2d(2), flat=nn.Flatten())
        )
        self.classify = nn.Linear(24, 10)
        self.unused = nn.Linear(3, 3)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classify(self.body(images))
        return logits


@pytest.fixture
def plain() -> Plain:
    torch.manual_seed(0)
    return Plain().eval()


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    start, targets = torch.rand(2, 5, 1, 8, 8, generator=generator)
    return start, targets


def test_all_ways_to_name_one_representation(
    plain: Plain, pair: tuple[Tensor, Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    """The input of the last linear layer, a layer's name, and a function agree with a `Network` of the same layers."""
    own = Network(plain.body, plain.classify, 1).eval()
    expected = invert_network(own, *pair, step_size=0.05, steps=5)
    with caplog.at_level(logging.INFO):
        assert torch.equal(invert(plain, *pair, step_size=0.05, steps=5), expected)
    assert "the representation is the input of the last linear layer, 'classify'" in caplog.text
    for representation in ("body", "body.flat", "body.pool", plain.body):
        assert torch.equal(invert(plain, *pair, step_size=0.05, steps=5, representation=representation), expected)
    assert torch.equal(invert(own, *pair, step_size=0.05, steps=5), expected)
    other = invert(plain, *pair, step_size=0.05, steps=5, representation="body.conv")
    assert not torch.allclose(other, expected)
    settings = {"norm": "l2", "eps": 0.5, "step_size": 0.1, "steps": 5}
    expected = representation_pgd(own, *pair, **settings)
    assert torch.equal(attack_representation(plain, *pair, **settings), expected)
    assert not any(layer._forward_hooks for layer in plain.modules())


def test_the_module_is_left_as_it_was(plain: Plain, pair: tuple[Tensor, Tensor]) -> None:
    plain.train()
    invert(plain, *pair, step_size=0.05, steps=2)
    assert plain.training
    assert all(weights.requires_grad and weights.grad is None for weights in plain.parameters())


@pytest.mark.parametrize(
    ("images", "problem"),
    [
        (torch.rand(2, 1, 8, 8) * 255, r"values from \S+ to 2\d\d\S*; they must lie in 0 to 1"),
        (torch.rand(2, 1, 8, 8) - 0.5, "values from -"),
        (torch.full((2, 1, 8, 8), torch.nan), "values from nan"),
        (torch.zeros(2, 1, 8, 8, dtype=torch.uint8), "type uint8; give float32 in 0 to 1"),
        (torch.rand(2, 1, 8, 8).half(), "type float16; give float32 in 0 to 1"),
        (torch.rand(2, 1, 8, 8).bfloat16(), "type bfloat16; give float32 in 0 to 1"),
        (torch.full((2, 1, 8, 8), 1.0000002), r"values from 1\.0000002\S* to 1\.0000002\S*; they"),
        (torch.rand(8, 8), r"shape \(8, 8\), not \(N, C, H, W\)"),
        (torch.rand(0, 1, 8, 8), "there is no image"),
    ],
)
def test_images_that_are_refused(plain: Plain, images: Tensor, problem: str) -> None:
    good, labels = torch.rand(2, 1, 8, 8), torch.zeros(2, dtype=torch.int64)
    ball = {"norm": "l2", "eps": 0.5, "step_size": 0.1, "steps": 1}
    with pytest.raises(UserError, match=f"images: {problem}"):
        pgd(plain, images, labels, **ball)
    with pytest.raises(UserError, match=f"start: {problem}"):
        invert(plain, images, good, step_size=0.1, steps=1)
    with pytest.raises(UserError, match=f"targets: {problem}"):
        attack_representation(plain, good, images, **ball)


def test_layers_that_are_refused(plain: Plain, pair: tuple[Tensor, Tensor]) -> None:
    for name, problem in (
        ("body.covn", r"there is no layer 'body.covn' \(did you mean 'body.conv'\?\)"),
        ("unused", "a forward pass does not call the layer 'unused'"),
    ):
        with pytest.raises(UserError, match=f"representation: {problem}"):
            invert(plain, *pair, step_size=0.1, steps=1, representation=name)
    with pytest.raises(UserError, match="representation: the network calls no linear layer"):
        invert(nn.Conv2d(1, 1, 3), *pair, step_size=0.1, steps=1)


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (torch.full((5,), 0.9), "type float32; give integers"),
        (torch.zeros(1, dtype=torch.int64), r"shape \(1,\), not \(5,\), one for each image"),
        (torch.zeros(5, 1, dtype=torch.int64), r"shape \(5, 1\), not \(5,\)"),
        (torch.arange(6, 11), "classes from 6 to 10, but the model gives logits of 10 classes"),
        (torch.arange(-1, 4), "classes from -1 to 3, but"),
    ],
)
def test_labels_that_are_refused(plain: Plain, pair: tuple[Tensor, Tensor], labels: Tensor, problem: str) -> None:
    own = Network(plain.body, plain.classify, 1)
    for model in (plain, own, FrozenNetwork(own)):
        with pytest.raises(UserError, match=f"^labels: {problem}"):
            pgd(model, pair[0], labels, norm="l2", eps=0.5, step_size=0.1, steps=1)


class Returns(nn.Module):
    """Its logits are what a function makes of those of a linear layer, which it calls by name."""

    def __init__(self, change: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.attention = nn.MultiheadAttention(10, 2)
        self.change = change

    def forward(self, images: Tensor) -> object:
        logits = self.linear(input=images.flatten(1))
        return self.change(self.attention(logits, logits, logits)[0])


def test_modules_that_are_refused(pair: tuple[Tensor, Tensor]) -> None:
    ball = {"norm": "l2", "eps": 0.5, "step_size": 0.1, "steps": 1}
    labels = torch.arange(5)
    for change in (lambda logits: {"logits": logits}, lambda logits: logits[None], lambda logits: logits.sum()):
        with pytest.raises(UserError, match=r"^model: gives no logits of shape \(N, K\) for images \(1, 1, 8, 8\)$"):
            pgd(Returns(change), pair[0], labels, **ball)
    module = Returns(lambda logits: logits)
    with pytest.raises(UserError, match=r"^representation: the layer 'attention' gives tuple, not a tensor$"):
        invert(module, *pair, step_size=0.1, steps=1, representation="attention")
    with pytest.raises(UserError, match=r"^images: type float64, unlike the weights of the model; give float32$"):
        pgd(module, pair[0].double(), labels, **ball)
    with pytest.raises(UserError, match=r"^images: type ndarray, not torch\.Tensor$"):
        pgd(module, pair[0].numpy(), labels, **ball)  # type: ignore[arg-type]
    with torch.inference_mode():
        made_inside = Returns(lambda logits: logits)
    with pytest.raises(UserError, match=r"^model: made inside torch\.inference_mode\(\), so it has no gradients"):
        pgd(made_inside, pair[0], labels, **ball)


def test_a_linear_layer_that_gets_its_input_by_name(pair: tuple[Tensor, Tensor]) -> None:
    """The representation is the flattened image, so that a step goes straight to the target."""
    start, targets = pair
    found = invert(Returns(lambda logits: logits), start, targets, step_size=0.01, steps=1)
    away = targets - start
    lengths = torch.linalg.vector_norm(away, dim=(1, 2, 3), keepdim=True)
    torch.testing.assert_close(found, start + 0.01 * away / lengths)


class InPlace(nn.Module):
    """A linear module that changes the images that it gets."""

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place
        torch.manual_seed(0)
        self.hidden = nn.Linear(64, 32)
        self.linear = nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        images = images.sub_(0.5) if self.in_place else images - 0.5
        logits: Tensor = self.linear(self.hidden(images.flatten(1)).relu())
        return logits


def test_a_module_that_works_in_place(pair: tuple[Tensor, Tensor]) -> None:
    start, targets = (images.clone() for images in pair)
    ball = {"norm": "l2", "eps": 0.5, "step_size": 0.1, "steps": 3}
    found = [
        torch.stack(
            [
                pgd(model, start, torch.arange(5), **ball),
                invert(model, start, targets, step_size=0.1, steps=3),
                attack_representation(model, start, targets, representation="hidden", **ball),
            ]
        )
        for model in (InPlace(in_place=True), InPlace(in_place=False))
    ]
    assert torch.equal(*found)
    assert torch.equal(start, pair[0])
    assert torch.equal(targets, pair[1])


def test_a_layer_before_one_that_works_in_place(pair: tuple[Tensor, Tensor]) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 6, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(216, 10)]
    expected = invert(nn.Sequential(*layers), *pair, step_size=0.05, steps=5, representation=layers[0])
    layers[1] = nn.ReLU()
    assert torch.equal(invert(nn.Sequential(*layers), *pair, step_size=0.05, steps=5, representation="0"), expected)
    layers[1] = nn.ReLU(inplace=True)
    assert torch.equal(invert(nn.Sequential(*layers), *pair, step_size=0.05, steps=5, representation="0"), expected)


def test_every_start_has_a_target(plain: Plain, pair: tuple[Tensor, Tensor]) -> None:
    start, targets = pair
    with pytest.raises(UserError, match=r"targets: shape \(5, 1, 8, 8\), but start has \(1, 1, 8, 8\)"):
        invert(plain, start[:1], targets, step_size=0.1, steps=1)
    with pytest.raises(UserError, match=r"targets: shape \(2, 1, 8, 8\), but images has \(5, 1, 8, 8\)"):
        attack_representation(plain, start, targets[:2], norm="l2", eps=0.5, step_size=0.1, steps=1)


@pytest.mark.parametrize("name", ["eps", "step_size", "steps"])
def test_numbers_below_zero_are_refused(plain: Plain, pair: tuple[Tensor, Tensor], name: str) -> None:
    settings = {"eps": 0.5, "step_size": 0.1, "steps": 1} | {name: -1}
    with pytest.raises(ValueError, match=f"{name}: -1 is negative"):
        attack_representation(plain, *pair, norm="l2", **settings)
    if name != "eps":
        del settings["eps"]
        with pytest.raises(ValueError, match=f"{name}: -1 is negative"):
            invert(plain, *pair, **settings)


def test_whatever_autograd_does_around_the_attack(plain: Plain, pair: tuple[Tensor, Tensor]) -> None:
    """Inside no_grad or inference_mode, with images that require gradients, with labels of another integer type."""
    images, targets = pair
    labels = torch.arange(5)
    ball = {"norm": "l2", "eps": 0.5, "step_size": 0.1, "steps": 3}
    expected = pgd(plain, images, labels, **ball)
    with torch.no_grad():
        assert torch.equal(pgd(plain, images, labels.int(), **ball), expected)
        assert invert(plain, *pair, step_size=0.1, steps=3).shape == images.shape
    with torch.inference_mode():
        found = [pgd(plain, images * 1, labels * 1, **ball), attack_representation(plain, images * 1, targets, **ball)]
        assert torch.equal(found[0], expected)
        assert invert(plain, images * 1, targets * 1, step_size=0.1, steps=3).shape == images.shape
    assert torch.equal(found[1], attack_representation(plain, *pair, **ball))
    leaf = images.clone().requires_grad_()
    for found in (pgd(plain, leaf, labels, **ball), attack_representation(plain, leaf, targets, **ball)):
        assert not found.requires_grad
    assert torch.equal(pgd(plain, leaf, labels, **ball), expected)


def test_no_step_gives_a_copy(plain: Plain, pair: tuple[Tensor, Tensor]) -> None:
    images, labels = pair[0], torch.arange(5)
    found = pgd(plain, images, labels, norm="linf", eps=0.5, step_size=0.1, steps=0)
    assert torch.equal(found, images)
    assert found.data_ptr() != images.data_ptr()


def test_public_names() -> None:
    assert {"evaluate", "load_model", "open_dataset", "__version__"} <= set(dir(robustfeatures))
    assert {"attack_representation", "invert", "pgd"} <= set(dir(attacks))
    assert all(callable(getattr(robustfeatures, name)) for name in robustfeatures.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'evalate'"):
        _ = robustfeatures.evalate  # type: ignore[attr-defined]
