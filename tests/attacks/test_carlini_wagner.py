"""CW-L2 against foolbox, a closed form, and the properties of any attack."""

from __future__ import annotations

import foolbox
import pytest
import torch
from torch import nn

from robustfeatures.attacks.carlini_wagner import carlini_wagner
from robustfeatures.models import create
from robustfeatures.models.network import Network
from tests.conftest import Digits


def test_finds_what_foolbox_finds(network: Network, digits: Digits) -> None:
    images, labels = digits.images[1000:1040], digits.labels[1000:1040]
    found, lengths = carlini_wagner(
        network, images, labels, searches=3, steps=30, learning_rate=0.02, initial_constant=0.5
    )
    attack = foolbox.attacks.L2CarliniWagnerAttack(
        binary_search_steps=3, steps=30, stepsize=0.02, initial_const=0.5, abort_early=False
    )
    model = foolbox.PyTorchModel(network.eval(), bounds=(0, 1), device=images.device)
    expected, _, _ = attack(model, images, foolbox.criteria.Misclassification(labels), epsilons=None)
    # Where foolbox finds none it gives a black image.
    success = (expected > 0).flatten(1).any(dim=1)
    assert success.sum() > 30
    assert (lengths.isfinite() == success).all()
    theirs = (expected - images).flatten(1).norm(dim=1)
    # Adam's first steps have the sign of the gradient, so a rounding error may send a pixel another way.
    close = ((lengths - theirs).abs() <= 1e-3 * theirs + 1e-5)[success]
    assert close.double().mean() > 0.95
    torch.testing.assert_close((found - images).flatten(1).norm(dim=1)[success], lengths[success], atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        assert (network(found).argmax(1) != labels)[success].all()
    assert found.min() >= 0
    assert found.max() <= 1


def test_comes_near_the_closed_form_on_a_linear_model(device: torch.device) -> None:
    """Two classes: the nearest point across the boundary lies (z_y - z_other) / ||w_1 - w_0|| away."""
    torch.manual_seed(0)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)).to(device)
    images = 0.5 + 0.05 * torch.randn(20, 1, 4, 4).to(device)
    normal = (linear[1].weight[1] - linear[1].weight[0]).norm().item()
    with torch.no_grad():
        # Class 1, three tenths away on average, so that the nearest points lie well inside [0, 1].
        linear[1].bias -= linear(images).mean(0) - torch.tensor([0.0, 0.3 * normal], device=device)
    logits = linear(images).detach()
    labels = logits.argmax(1)
    exact = (logits[:, 1] - logits[:, 0]).abs() / normal
    _, lengths = carlini_wagner(
        linear, images, labels, searches=6, steps=100, learning_rate=0.005, initial_constant=2.0
    )
    assert (lengths > exact).all()
    # A step of Adam changes each of 16 pixels by half its rate: 0.01 in all.
    torch.testing.assert_close(lengths, exact, rtol=0, atol=0.01)


def test_what_cannot_be_fooled_comes_back_as_it_was() -> None:
    constant = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    nn.init.zeros_(constant[1].weight)
    constant[1].bias.data = torch.tensor([1.0, 0.0, 0.0])
    images = torch.rand(3, 1, 2, 2)
    found, lengths = carlini_wagner(constant, images, torch.zeros(3, dtype=torch.int64), searches=2, steps=3)
    assert torch.equal(found, images)
    assert lengths.isinf().all()


def test_leaves_the_model_as_it_was() -> None:
    model = create("small-cnn", num_classes=4, image_shape=(1, 6, 6)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    carlini_wagner(model, torch.rand(4, 1, 6, 6), torch.arange(4), searches=1, steps=2)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("field", ["searches", "steps", "learning_rate", "initial_constant"])
def test_refuses_bad_arguments_by_name(network: Network, digits: Digits, field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: 0 is not above 0"):
        carlini_wagner(network, digits.images[:1], digits.labels[:1], **{field: 0})  # type: ignore[arg-type]


def test_a_model_that_works_in_place_changes_no_result() -> None:
    torch.manual_seed(0)
    linear, images = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), torch.rand(8, 1, 4, 4)

    class InPlace(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = linear(images.sub_(0.5))
            return logits

    class Apart(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = linear(images - 0.5)
            return logits

    labels = Apart()(images).argmax(dim=1)
    settings = {"searches": 2, "steps": 40, "initial_constant": 1.0}
    (found, lengths), (expected, distances) = (
        carlini_wagner(model, images, labels, **settings)  # type: ignore[arg-type]
        for model in (InPlace(), Apart())
    )
    assert torch.equal(found, expected)
    assert torch.equal(lengths, distances)
    assert lengths.isfinite().any()
