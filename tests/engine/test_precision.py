"""A precision that the device only emulates is said in the log, once."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch

from robustfeatures.engine import precision
from robustfeatures.engine.precision import has_bfloat16, warn_if_emulated

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """What was said in one test is said again in the next."""
    precision._say_emulated.cache_clear()
    yield
    precision._say_emulated.cache_clear()


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
