"""`robustfeatures.evaluate` on modules of one's own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustfeatures import evaluate
from robustfeatures.attacks.evaluating.settings import PGD
from robustfeatures.errors import UserError
from robustfeatures.models.creation import create
from robustfeatures.models.network import Network

PGD_DICT = {"kind": "pgd", "steps": 5, "relative_step_sizes": [0.5]}


@pytest.fixture
def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))


@pytest.fixture
def grey() -> Tensor:
    # Grey, so that no step leaves [0, 1].
    return 0.5 + 0.02 * torch.randn(100, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def test_a_linear_module_is_robust_up_to_the_distance_of_its_boundary(linear: nn.Module, grey: Tensor) -> None:
    """|w x + b| / |w| in L2, |w x + b| / |w|_1 in Linf."""
    weights, bias = (tensor.detach() for tensor in linear[1].parameters())  # type: ignore[index]
    direction = weights[1] - weights[0]
    margins = grey.flatten(1) @ direction + bias[1] - bias[0]
    labels = (margins > 0).long()
    labels[:10] = 1 - labels[:10]
    linear.train()
    for norm, length in (("l2", direction.norm()), ("linf", direction.abs().sum())):
        distances = margins.abs() / length
        radii = distances.quantile(torch.tensor([0.2, 0.5, 0.8])).tolist()
        for attack in (PGD_DICT, PGD(kind="pgd", steps=5, relative_step_sizes=(0.5,))):
            table = evaluate(linear, grey, labels, norm=norm, eps=radii, attacks=[attack])
            expected = [int((distances[10:] > radius).sum()) for radius in [-1.0, *radii]]
            assert table["correct"].tolist() == expected
            assert table["accuracy"].tolist() == [float(count) for count in expected]
            assert table["eps"].tolist() == [0.0, *sorted(radii)]
            assert table["attack"].tolist() == ["", *["pgd-5-by-0.5"] * 3]
            assert table["final"].all()
    assert linear.training


class Masked(nn.Module):
    """A network whose rounding hides the gradient."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner(images.mul(255).round().div(255))
        return logits


def test_masked_gradients_are_warned_of(linear: nn.Module, grey: Tensor) -> None:
    labels = linear(grey).argmax(dim=1)
    with pytest.warns(UserWarning, match="Masked: gradients may be masked.*100 of 100 images have no gradient"):
        table = evaluate(Masked(linear), grey, labels, eps=[0.05], attacks=[PGD_DICT, {"kind": "noise", "draws": 2}])
    assert len(table.attrs["warnings"]) >= 1
    assert table["final"].tolist() == [True, False, True]
    assert table["attack"].tolist() == ["", "pgd-5-by-0.5", "noise-2"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"images": torch.rand(4, 1, 8, 8) * 255}, "images: values from"),
        ({"images": np.zeros((4, 1, 8, 8), np.uint8)}, "images: type uint8; give float32 in 0 to 1"),
        (
            {"labels": torch.tensor([0, 1, 2, 0])},
            "labels: classes from 0 to 2, but the model gives logits of 2 classes",
        ),
        ({"labels": torch.zeros(3)}, r"labels: shape \(3,\) and type torch.float32, not integers \(4,\)"),
        ({"model": nn.Flatten(0)}, r"model: gives no logits of shape \(N, K\) for images \(4, 1, 8, 8\)"),
        ({"attacks": [{"kind": "pdg"}]}, r"evaluate: attacks.0.kind: 'pdg' is unknown \(did you mean 'pgd'\?\)"),
        (
            {"attacks": [{"kind": "cw-l2"}], "norm": "linf", "eps": [0.1]},
            "evaluate: attacks: cw-l2 attacks in the norm",
        ),
        ({"attacks": [PGD_DICT, PGD_DICT]}, "evaluate: attacks: an attack appears twice"),
        ({"norm": "l3"}, r"evaluate: norm: 'l3' is unknown"),
        ({"eps": [8], "norm": "linf"}, "evaluate: eps: pixels lie in"),
        ({"eps": 0.5}, r"^evaluate: eps: 0.5 is no list of radii; write \[0.5\]$"),
        ({"eps": np.float32(0.5)}, r"^evaluate: eps: .*0.5\)? is no list of radii; write \[0.5\]$"),
        ({"eps": ["8/0"]}, r"^evaluate: eps: \['8/0'\] has a radius that is no number$"),
        ({"eps": [None]}, r"^evaluate: eps: \[None\] has a radius that is no number$"),
        ({"eps": [0.5, float("nan")]}, r"^evaluate: eps\.1: nan is no radius; it has to be 0 or more, and finite$"),
        ({"eps": [-1]}, r"^evaluate: eps\.0: -1\.0 is no radius"),
        ({"eps": ["1e400"]}, r"^evaluate: eps: \['1e400'\] has a radius that is no number$"),
        ({"model": nn.Sequential(nn.Flatten(), nn.Linear(64, 2).double())}, "model: has weights of type torch.float64"),
        (
            {"attacks": [{"kind": "pgd", "steps": 3, "relative_step_sizes": [0.1, 0.2]}]},
            "evaluate: attacks: pgd-3-by-0.1,0.2: 3 x 0.2 of the radius does not reach the surface of the ball",
        ),
    ],
)
def test_what_is_refused(linear: nn.Module, changes: dict[str, Any], problem: str) -> None:
    given: dict[str, Any] = {"model": linear, "images": torch.rand(4, 1, 8, 8), "labels": torch.tensor([0, 1, 1, 0])}
    given |= changes
    with pytest.raises(UserError, match=problem):
        evaluate(given.pop("model"), given.pop("images"), given.pop("labels"), **given)


def test_steps_that_reach_the_surface_but_for_rounding_are_accepted(linear: nn.Module, grey: Tensor) -> None:
    attack = {"kind": "pgd", "steps": 49, "relative_step_sizes": [1 / 49]}
    assert len(evaluate(linear, grey, linear(grey).argmax(dim=1), eps=[0.01], attacks=[attack])) == 2


def test_weights_that_can_have_no_gradient_are_refused(grey: Tensor) -> None:
    with torch.inference_mode():
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    with pytest.raises(UserError, match=r"^model: made inside torch.inference_mode\(\), so it has no gradients"):
        evaluate(model, grey, torch.zeros(100, dtype=torch.int64), eps=[0.01], attacks=[PGD_DICT])


def test_inside_no_grad_and_with_images_in_another_layout(linear: nn.Module) -> None:
    images, labels = torch.rand(20, 3, 8, 8), torch.arange(20) % 2
    flat = nn.Linear(192, 2)

    class View(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = flat(images.view(len(images), -1))
            return logits

    attacks = [PGD_DICT, {"kind": "cw-l2", "searches": 1, "steps": 2}, {"kind": "autoattack", "parts": ["apgd-ce"]}]
    expected = evaluate(View(), images, labels, eps=[0.1], attacks=attacks)
    with torch.no_grad():
        found = evaluate(
            View(), images.contiguous(memory_format=torch.channels_last), labels, eps=[0.1], attacks=attacks
        )
    assert found.equals(expected)


def test_the_forward_of_a_subclass_counts(grey: Tensor) -> None:
    class Turned(Network):
        def forward(self, images: Tensor) -> Tensor:
            return -super().forward(images)

    torch.manual_seed(0)
    model = Turned(nn.Flatten(), nn.Linear(64, 2), 1)
    table = evaluate(model, grey, model(grey).argmax(1), eps=[0.01], attacks=[PGD_DICT])
    assert table["accuracy"].iloc[0] == 100.0


def test_a_network_that_gives_nan(linear: nn.Module) -> None:
    with torch.no_grad():
        linear[1].bias[1] = torch.nan  # type: ignore[index]
    with pytest.raises(UserError, match="model: gives NaN or infinite logits"):
        evaluate(linear, torch.rand(2, 1, 8, 8), torch.tensor([0, 0]))


def test_a_hook_and_an_own_forward_are_part_of_the_network() -> None:
    torch.manual_seed(0)
    images = torch.rand(30, 1, 8, 8)
    plain = create("small-cnn", num_classes=4, image_shape=(1, 8, 8), width=4)
    # With statistics of these images it predicts several classes.
    for _ in range(50):
        plain(images)
    plain.eval()
    labels = plain(images).argmax(dim=1)

    class Contrast(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.inner(0.5 + 3 * (images - 0.5))
            return logits

    expected = evaluate(Contrast(plain), images, labels, eps=[0.5], attacks=[PGD_DICT])
    hooked, replaced = copy.deepcopy(plain), copy.deepcopy(plain)
    hooked.register_forward_pre_hook(lambda module, given: (0.5 + 3 * (given[0] - 0.5),))
    forward = replaced.forward
    replaced.forward = lambda images: forward(0.5 + 3 * (images - 0.5))  # type: ignore[method-assign]
    assert evaluate(hooked, images, labels, eps=[0.5], attacks=[PGD_DICT]).equals(expected)
    assert evaluate(replaced, images, labels, eps=[0.5], attacks=[PGD_DICT]).equals(expected)
    assert not evaluate(plain, images, labels, eps=[0.5], attacks=[PGD_DICT]).equals(expected)


class Doubtful(nn.Module):
    """A network whose logits are changed."""

    def __init__(self, inner: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner = inner
        self.change = change

    def forward(self, images: Tensor) -> Tensor:
        return self.change(self.inner(images))


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (lambda logits: logits + 0.1 * torch.randn_like(logits), "the logits of an image differ from call to call"),
        (lambda logits: logits.softmax(dim=1), "the outputs are probabilities, not logits"),
    ],
)
def test_random_logits_and_probabilities_are_warned_of(
    linear: nn.Module, grey: Tensor, change: Callable[[Tensor], Tensor], warning: str
) -> None:
    labels = linear(grey).argmax(dim=1)
    with pytest.warns(UserWarning, match=f"Doubtful: {warning}"):
        table = evaluate(Doubtful(linear, change), grey, labels, eps=[0.01], attacks=[PGD_DICT])
    assert any(warning in line for line in table.attrs["warnings"])
    clear = evaluate(Doubtful(linear, nn.Identity()), grey, labels, eps=[0.01], attacks=[PGD_DICT])
    assert clear.attrs["warnings"] == []


def test_radii_may_be_fractions_and_other_types_do_not_matter(linear: nn.Module, grey: Tensor) -> None:
    labels = linear(grey).argmax(dim=1)
    expected = evaluate(linear, grey, labels, eps=[8 / 255], attacks=[PGD_DICT])
    assert evaluate(linear, grey, labels, eps=["8/255"], attacks=[PGD_DICT]).equals(expected)
    torch.set_default_dtype(torch.float64)
    try:
        assert evaluate(linear, grey, labels, eps=[8 / 255], attacks=[PGD_DICT]).equals(expected)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.inference_mode():
        inferred = grey.clone()
        assert evaluate(linear, inferred, labels.clone(), eps=[8 / 255], attacks=[PGD_DICT]).equals(expected)
