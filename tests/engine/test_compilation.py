"""`compile: true` compiles the frozen network and the training step, which then give the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robustfeatures.attacks import invert, pgd
from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.compilation import compile_module
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.errors import UserError
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.training.adversary import Attacker
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Adversary, Training

ADVERSARY = Adversary(norm="l2", eps=0.5, step_size=0.2, steps=3)


class Compiler:
    """Replaces `torch.compile`, which needs a minute and a C++ compiler, and counts the calls of each module."""

    def __init__(self) -> None:
        self.calls: dict[nn.Module, int] = {}
        self.error: Exception | None = None

    def __call__(self, module: nn.Module, *, dynamic: bool, options: Mapping[str, Any]) -> Callable[[Tensor], Tensor]:
        # One kernel serves all batch sizes, and none is chosen by a timing, so that every run has the same bits.
        assert dynamic
        assert options == {"deterministic": True}
        self.calls[module] = 0

        def forward(images: Tensor) -> Tensor:
            if self.error:
                raise self.error
            self.calls[module] += 1
            result: Tensor = module(images)
            return result

        return forward


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    found = Compiler()
    monkeypatch.setattr(torch, "compile", found)
    return found


def network() -> Network:
    torch.manual_seed(0)
    return create("small-cnn", num_classes=3, image_shape=(1, 8, 8), width=4)


def test_the_frozen_network_is_compiled_once_for_attack_and_inversion(compiler: Compiler) -> None:
    images, labels = torch.rand(6, 1, 8, 8), torch.arange(6) % 3
    plain, fast = FrozenNetwork(network()), FrozenNetwork(network(), compile=True)
    (calls,) = compiler.calls.values()
    assert calls == 0
    attack: dict[str, Any] = {"norm": "l2", "eps": 0.5, "step_size": 0.2, "steps": 3}
    assert torch.equal(pgd(fast, images, labels, **attack), pgd(plain, images, labels, **attack))
    assert list(compiler.calls.values()) == [3]
    inverted = (invert(model, images.flip(0), images, step_size=0.1, steps=4) for model in (fast, plain))
    assert torch.equal(*inverted)
    # The representation of the targets is one more.
    assert list(compiler.calls.values()) == [3 + 5]
    assert fast.state_dict().keys() == plain.state_dict().keys()


def test_training_steps_and_their_attack_are_compiled(compiler: Compiler) -> None:
    images, labels = torch.rand(20, 1, 8, 8), torch.arange(20) % 3
    settings = Training(epochs=2, batch_size=8, learning_rate=0.05, adversary=ADVERSARY)
    found = []
    for compile in (False, True):
        trained = network()
        attacker = Attacker(trained, ADVERSARY, compile=compile)
        train(trained, InMemory(images), labels, settings, seed=0, perturbation=attacker, compile=compile)
        found.append(trained.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert found[0].keys() == found[1].keys()
    # Three batches an epoch, each attacked in three steps.
    assert list(compiler.calls.values()) == [2 * 3 * ADVERSARY.steps, 2 * 3]


def test_a_compiler_that_fails_is_one_line_that_names_the_field(compiler: Compiler) -> None:
    from torch._dynamo.exc import TorchDynamoException

    compiler.error = TorchDynamoException("no C++ compiler found\nand more of it")
    with pytest.raises(UserError, match=r"^compile: .* set it to false: no C\+\+ compiler found$"):
        compile_module(network())(torch.rand(2, 1, 8, 8))
