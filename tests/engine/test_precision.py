"""The log warns when a device emulates a precision."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
import torch

from robustfeatures.engine import precision
from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.precision import has_bfloat16, warn_if_emulated
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Training

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Every test may warn again."""
    precision._warn_emulated.cache_clear()
    yield
    precision._warn_emulated.cache_clear()


def has(units: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: units)


@pytest.mark.parametrize("units", [{}, {"avx2": True, "avx512_f": True, "avx512_bf16": False}, {"neon": True}])
def test_emulated(units: dict[str, bool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    has(units, monkeypatch)
    assert not has_bfloat16(CPU)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            warn_if_emulated(CPU, "float32")
        assert caplog.messages == []
        for _ in range(2):
            warn_if_emulated(CPU, "bfloat16")
    (message,) = caplog.messages
    assert "precision: bfloat16 is emulated on this cpu" in message


def attack(network: Network) -> None:
    FrozenNetwork(network, precision="bfloat16")


def train_once(network: Network) -> None:
    settings = Training(epochs=1, batch_size=2, learning_rate=0.1, weight_decay=0.0, schedule="constant")
    train(network, InMemory(torch.rand(2, 1, 8, 8)), torch.tensor([0, 1]), settings, seed=0, precision="bfloat16")


@pytest.mark.parametrize("work", [attack, train_once])
def test_attacks_and_trainings_say_it(
    work: Callable[[Network], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    has({}, monkeypatch)
    with caplog.at_level(logging.WARNING):
        work(create("linear", num_classes=2, image_shape=(1, 8, 8)))
    assert [message for message in caplog.messages if "is emulated" in message]


@pytest.mark.parametrize("unit", ["avx512_bf16", "amx_bf16", "bf16"])
def test_in_hardware(unit: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    has({unit: True}, monkeypatch)
    assert has_bfloat16(CPU)
    with caplog.at_level(logging.WARNING):
        warn_if_emulated(CPU, "bfloat16")
    assert caplog.messages == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu() -> None:
    assert has_bfloat16(torch.device("cuda")) == (torch.cuda.get_device_capability() >= (8, 0))


def test_float32_stays_float32_inside_another_autocast(device: torch.device) -> None:
    network = create("small-cnn", num_classes=2, image_shape=(1, 8, 8), width=4).to(device)
    images = torch.rand(3, 1, 8, 8).to(device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        frozen_network = FrozenNetwork(network)
        inside = frozen_network.representation(images)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, frozen_network.representation(images))
