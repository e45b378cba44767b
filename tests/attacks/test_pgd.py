"""PGD against foolbox, a closed form, and the properties every attack must have."""

from __future__ import annotations

import copy

import foolbox
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from robustfeatures.attacks import pgd
from robustfeatures.attacks.norms import load_norm
from robustfeatures.engine.eval_mode import freeze
from robustfeatures.models import create
from robustfeatures.models.network import Network
from tests.conftest import Digits

ATTACKS = {
    "l2": foolbox.attacks.L2ProjectedGradientDescentAttack,
    "linf": foolbox.attacks.LinfProjectedGradientDescentAttack,
}
RADIUS = {"l2": 0.6, "linf": 0.08}


def lengths(perturbation: torch.Tensor, norm: str) -> torch.Tensor:
    return torch.linalg.vector_norm(perturbation.flatten(1), ord=2 if norm == "l2" else float("inf"), dim=1)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("targeted", [False, True])
def test_equals_foolbox(network: Network, digits: Digits, norm: str, targeted: bool) -> None:
    # In float32 a rounding error that decides on which side of a ReLU an image is grows with every step.
    network = copy.deepcopy(network).double()
    images, labels = digits.images[1000:1100].double(), digits.labels[1000:1100]
    goal = (labels + 1) % 10 if targeted else labels
    eps, steps = RADIUS[norm], 15
    attack = ATTACKS[norm](abs_stepsize=eps / 5, steps=steps, random_start=False)
    criteria = foolbox.criteria
    criterion = criteria.TargetedMisclassification(goal) if targeted else criteria.Misclassification(labels)
    with freeze(network):
        model = foolbox.PyTorchModel(network, bounds=(0, 1), device=images.device)
        expected = attack.run(model, images, criterion, epsilon=eps)
    found = pgd(network, images, goal, norm=norm, eps=eps, step_size=eps / 5, steps=steps, targeted=targeted)
    assert (found - images).abs().max() > 0.05
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


@settings(max_examples=40, deadline=None)
@given(
    norm=st.sampled_from(["l2", "linf"]),
    eps=st.floats(0, 3),
    step_size=st.floats(1e-3, 2),
    steps=st.integers(0, 6),
    targeted=st.booleans(),
    random_start=st.booleans(),
    seed=st.integers(0, 100),
)
def test_never_leaves_the_ball_or_the_pixel_range(
    norm: str, eps: float, step_size: float, steps: int, targeted: bool, random_start: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = create("small-cnn", num_classes=4, image_shape=(1, 6, 6))
    # Black, white and grey images lie on the border of the pixel range and inside it.
    images = torch.rand((5, 1, 6, 6), generator=generator).mul(3).sub(1).clamp(0, 1)
    labels = torch.randint(0, 4, (5,), generator=generator)
    found = pgd(
        model,
        images,
        labels,
        norm=norm,
        eps=eps,
        step_size=step_size,
        steps=steps,
        targeted=targeted,
        random_start=random_start,
        generator=generator,
    )
    assert found.shape == images.shape
    assert found.min() >= 0
    assert found.max() <= 1
    assert (lengths(found - images, norm) <= eps * (1 + 1e-5) + 1e-6).all()


def test_progress_receives_every_step_and_changes_nothing(network: Network, digits: Digits) -> None:
    images, labels = digits.images[1000:1010], digits.labels[1000:1010]
    steps_done: list[int] = []
    found = pgd(network, images, labels, norm="l2", eps=0.5, step_size=0.1, steps=3, progress=steps_done.append)
    assert steps_done == [1, 2, 3]
    assert torch.equal(found, pgd(network, images, labels, norm="l2", eps=0.5, step_size=0.1, steps=3))


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_is_the_same_for_any_batch_size(network: Network, digits: Digits, norm: str) -> None:
    # In float64, for in float32 a batch's last bits may part the paths of an image at a bend.
    double = copy.deepcopy(network).double()
    images, labels = digits.images[1000:1040].double(), digits.labels[1000:1040]

    def attack(start: int, stop: int) -> torch.Tensor:
        return pgd(
            double,
            images[start:stop],
            labels[start:stop],
            norm=norm,
            eps=RADIUS[norm],
            step_size=RADIUS[norm] / 5,
            steps=10,
        )

    whole = attack(0, 40)
    for size in (1, 7, 16):
        parts = torch.cat([attack(start, min(start + size, 40)) for start in range(0, 40, size)])
        torch.testing.assert_close(parts, whole, atol=1e-10, rtol=0)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("targeted", [False, True])
def test_reaches_the_closed_form_on_a_linear_model(device: torch.device, norm: str, targeted: bool) -> None:
    """Two classes, logits W x: the best perturbation is eps along w1 - w0 (or its sign), whatever x is."""
    torch.manual_seed(0)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)).to(device)
    direction = (linear[1].weight[1] - linear[1].weight[0]).detach().view(1, 1, 4, 4)
    images = torch.full((3, 1, 4, 4), 0.5, device=device)
    labels, eps = torch.zeros(3, dtype=torch.int64, device=device), 0.2
    towards = direction / direction.norm() if norm == "l2" else direction.sign()
    # Untargeted from class 0 and targeted at class 0 go opposite ways.
    expected = images + (-eps if targeted else eps) * towards
    found = pgd(linear, images, labels, norm=norm, eps=eps, step_size=0.05, steps=40, targeted=targeted)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_leaves_the_model_as_it_was(digits: Digits) -> None:
    torch.manual_seed(0)
    model = create("small-cnn", num_classes=10, image_shape=(1, 8, 8)).to(digits.images.device)
    model.train()
    model.head.bias.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pgd(model, digits.images[:64], digits.labels[:64], norm="l2", eps=0.5, step_size=0.1, steps=5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert any("running_mean" in name for name in before)
    assert all(module.training for module in model.modules())
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["head.bias"]
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_zero_gradient_moves_nothing() -> None:
    images = torch.rand(2, 1, 3, 3)
    assert torch.equal(load_norm("l2").step(images, torch.zeros_like(images), torch.tensor(0.1)), images)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_steps_and_radii_may_differ_from_image_to_image(norm: str) -> None:
    ball, sizes = load_norm(norm), torch.tensor([0.0, 0.3, 9.0], dtype=torch.float64)
    torch.manual_seed(0)
    origin, images, gradient = torch.rand(3, 3, 2, 4, 4, dtype=torch.float64)
    moved = ball.step(images, gradient, sizes.view(3, 1, 1, 1))
    inside = ball.project(images, origin, sizes.view(3, 1, 1, 1))
    torch.testing.assert_close(lengths(moved - images, norm), sizes)
    assert torch.equal(inside[0], origin[0])
    distance = lengths(images - origin, norm)
    torch.testing.assert_close(lengths(inside - origin, norm), torch.minimum(distance, sizes))
    assert (distance > sizes).tolist() == [True, True, False]
    for index, size in enumerate(sizes):
        alone = slice(index, index + 1)
        torch.testing.assert_close(ball.step(images[alone], gradient[alone], size), moved[alone])
        torch.testing.assert_close(ball.project(images[alone], origin[alone], size), inside[alone])


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_random_starts_fill_the_ball_evenly(device: torch.device, norm: str) -> None:
    """Inside a d-ball of radius eps a share (r / eps)^d of the points lies within r; per seed the draw is the same."""
    count, dimension, eps = 20_000, 12, 0.5
    images = torch.zeros((count, 2, 2, 3), device=device)
    drawn, again = (load_norm(norm).random_start(images, eps, torch.Generator(device).manual_seed(0)) for _ in range(2))
    assert torch.equal(drawn, again)
    shares = (lengths(drawn, norm).double() / eps) ** dimension
    assert stats.kstest(shares.cpu().numpy(), "uniform").pvalue > 1e-4
    # Five standard deviations of a share of 1/2.
    positive = (drawn.flatten(1) > 0).double().mean(dim=0)
    assert (positive - 0.5).abs().max() < 5 * 0.5 / count**0.5


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("norm", {"norm": "l1", "eps": 1.0, "step_size": 0.1, "steps": 1}),
        ("eps", {"norm": "l2", "eps": -1.0, "step_size": 0.1, "steps": 1}),
        ("step_size", {"norm": "l2", "eps": 1.0, "step_size": -0.1, "steps": 1}),
        ("steps", {"norm": "l2", "eps": 1.0, "step_size": 0.1, "steps": -1}),
    ],
)
def test_refuses_bad_arguments_by_name(
    network: Network, digits: Digits, field: str, arguments: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        pgd(network, digits.images[:2], digits.labels[:2], **arguments)  # type: ignore[arg-type]
