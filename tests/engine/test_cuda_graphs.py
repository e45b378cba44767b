"""Which steps of attacks are recorded as CUDA graphs, and that a graph reads only memory of its own.

No graph is recorded here: a stand-in calls the function on the tensors that the graph holds, as its kernels would.
`tests/gpu/test_fast_path.py` records real ones.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from robustfeatures.attacks import gradient_ascent, invert, pgd
from robustfeatures.engine import cuda_graphs
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.models.network import Network
from tests.conftest import Digits


class StandIn:
    """In place of `CudaGraph`."""

    recorded: ClassVar[list[StandIn]] = []

    def __init__(self, function: cuda_graphs.Function, tensors: Mapping[str, Tensor], pool: object = None) -> None:
        self.function = function
        self.tensors = {name: values.clone() for name, values in tensors.items()}
        self.pool = object() if pool is None else pool
        self.replayed = 0
        self.recorded.append(self)

    def replay(self) -> None:
        self.replayed += 1
        self.tensors["images"].copy_(self.function(**self.tensors))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StandIn]]:
    """The graphs that are recorded, if the fast path is taken here too."""
    monkeypatch.setattr(gradient_ascent, "has_fast_path", lambda device: True)
    monkeypatch.setattr(cuda_graphs, "CudaGraph", StandIn)
    StandIn.recorded.clear()
    yield StandIn.recorded
    StandIn.recorded.clear()


def attack(network: torch.nn.Module, digits: Digits, first: int, *, count: int = 20, eps: float = 0.5) -> Tensor:
    rows = slice(first, first + count)
    return pgd(network, digits.images[rows], digits.labels[rows], norm="l2", eps=eps, step_size=eps / 4, steps=5)


def test_a_graph_has_the_bits_of_the_plain_steps(network: Network, digits: Digits, recorded: list[StandIn]) -> None:
    """With other images, labels, radii and weights than those it was recorded with."""
    network = copy.deepcopy(network)
    fast, plain = FrozenNetwork(network), FrozenNetwork(network)
    plain.graphs = None  # type: ignore[assignment]
    for first, eps in ((1000, 0.5), (1100, 0.5), (1200, 0.9)):
        assert torch.equal(attack(fast, digits, first, eps=eps), attack(plain, digits, first, eps=eps))
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.mul_(1.01)
        fast.refresh()
        plain.refresh()
    (graph,) = recorded
    assert graph.replayed == 2 * 5


def test_results_outlive_the_next_attack(network: Network, digits: Digits, recorded: list[StandIn]) -> None:
    frozen_network = FrozenNetwork(network)
    _, found, _ = (attack(frozen_network, digits, first) for first in (1000, 1020, 1040))
    assert torch.equal(found, attack(FrozenNetwork(network), digits, 1020))


def test_one_graph_for_each_attack_and_size_that_comes_twice(
    network: Network, digits: Digits, recorded: list[StandIn]
) -> None:
    frozen_network = FrozenNetwork(network)
    for count in (20, 20, 7, 20):
        attack(frozen_network, digits, 1000, count=count)
    assert len(recorded) == 1
    for _ in range(2):
        attack(frozen_network, digits, 1000, count=7)
        inverted = invert(frozen_network, digits.images[:7], digits.images[7:14], step_size=0.1, steps=3)
    assert len(recorded) == 3
    assert len({id(graph.pool) for graph in recorded}) == 1
    assert torch.equal(
        inverted, invert(FrozenNetwork(network), digits.images[:7], digits.images[7:14], step_size=0.1, steps=3)
    )


def test_only_frozen_networks_have_graphs(network: Network, digits: Digits, recorded: list[StandIn]) -> None:
    """Another may get other weights in other memory, of which a graph would not know."""
    for _ in range(3):
        attack(network, digits, 1000)
    assert recorded == []


def test_off_by_default(network: Network, digits: Digits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "CudaGraph", StandIn)
    frozen_network = FrozenNetwork(network)
    for _ in range(3):
        attack(frozen_network, digits, 1000)
    assert StandIn.recorded == []
    # In a process where no test has turned it on.
    code = (
        "import torch; from robustfeatures.engine.fast_path import has_fast_path; "
        "assert not has_fast_path(torch.device('cuda'))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
