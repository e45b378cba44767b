"""The optimisers against those of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from robustfeatures.training.optimiser import SGD, Adam, Optimiser


def test_velocities_of_another_layout_are_laid_out_like_their_parameters() -> None:
    """A GPU wrote the checkpoint in channels-last; a processor trains on in the other layout."""
    torch.manual_seed(0)
    start, gradient, velocity = (torch.rand(8, 4, 3, 3) for _ in range(3))
    moved = []
    for layout in (torch.contiguous_format, torch.channels_last):
        parameter = torch.nn.Parameter(start.clone())
        parameter.grad = gradient.clone()
        optimiser = SGD([parameter], momentum=0.9, weight_decay=0.01)
        optimiser.restore({"velocities": {0: velocity.contiguous(memory_format=layout)}})
        optimiser.step(0.1)
        moved.append(parameter.detach())
    expected = start - 0.1 * (0.9 * velocity + gradient + 0.01 * start)
    torch.testing.assert_close(moved[0], expected)
    assert torch.equal(moved[0], moved[1])


@pytest.mark.parametrize("momentum", [0.9, 0.5])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SGD, lambda parameters, first: torch.optim.SGD(parameters, lr=1.0, momentum=first, weight_decay=0.01)),
        (Adam, lambda parameters, first: torch.optim.Adam(parameters, lr=1.0, betas=(first, 0.999), weight_decay=0.01)),
    ],
)
def test_optimisers_are_torchs(
    device: torch.device,
    ours: type[Optimiser],
    theirs: Callable[[Iterator[torch.nn.Parameter], float], torch.optim.Optimizer],
    momentum: float,
) -> None:
    torch.manual_seed(0)
    one, other = (torch.nn.Linear(5, 3).to(device) for _ in range(2))
    other.load_state_dict(one.state_dict())
    mine = ours(one.parameters(), momentum=momentum, weight_decay=0.01)
    reference = theirs(other.parameters(), momentum)
    for step in range(5):
        batch = torch.randn(4, 5).to(device)
        for model in (one, other):
            model.zero_grad()
            model(batch).square().sum().backward()
        reference.param_groups[0]["lr"] = 0.05 / (step + 1)
        mine.step(0.05 / (step + 1))
        reference.step()
    torch.testing.assert_close(one.weight, other.weight)
    torch.testing.assert_close(one.bias, other.bias)


@pytest.mark.parametrize("momentum", [0.9, 0.0])
def test_a_layer_that_some_steps_skip_moves_as_in_torch(momentum: float) -> None:
    """Stochastic depth: the second layer has its first gradient after the first one has a velocity."""
    torch.manual_seed(0)
    one, other = (nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5)) for _ in range(2))
    other.load_state_dict(one.state_dict())
    mine = SGD(one.parameters(), momentum=momentum, weight_decay=0.01)
    reference = torch.optim.SGD(other.parameters(), lr=0.05, momentum=momentum, weight_decay=0.01)
    for skipped in (True, False, True, False):
        batch = torch.randn(4, 5)
        for model in (one, other):
            model.zero_grad()
            (model[0](batch) if skipped else model(batch)).square().sum().backward()
        mine.step(0.05)
        reference.step()
    for found, expected in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, expected)


def test_adam_counts_its_steps_on_the_processor() -> None:
    """On a GPU torch would wait for each parameter's step number. The numbers stay on the processor after a resume."""
    elsewhere = Mock(cpu=lambda: torch.tensor(3.0))
    optimiser = Adam([torch.nn.Parameter(torch.ones(2))], momentum=0.9, weight_decay=0.0)
    optimiser.restore({"first": {}, "second": {}, "steps": {0: elsewhere}})
    assert optimiser.state == {"first": {}, "second": {}, "steps": {0: torch.tensor(3.0)}}
