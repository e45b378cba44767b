"""Checkpoints: the last two are kept, damage is noticed, and only damage makes a training begin anew."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

import pytest
import torch

from robustfeatures.cli.app import stop
from robustfeatures.errors import StoppedError, UserError
from robustfeatures.pipeline.run.checkpoints import DIGEST_BYTES, Checkpoints
from robustfeatures.pipeline.run.device_models import DeviceModels

CPU = torch.device("cpu")


@pytest.fixture
def kept(tmp_path: Path) -> Checkpoints:
    kept = Checkpoints(tmp_path)
    for step in (1, 2, 3):
        kept.save({"step": step, "weights": torch.full((100,), float(step))})
    return kept


def step_of(kept: Checkpoints) -> int | None:
    state = kept.load(CPU)
    return None if state is None else int(state["step"])


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_the_last_two_are_kept(kept: Checkpoints, tmp_path: Path) -> None:
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-before.pt", "checkpoint.pt"]
    assert step_of(kept) == 3
    # As after a kill between the two renames of a save.
    kept.path.unlink()
    assert step_of(kept) == 2


@pytest.mark.parametrize("place", [0, DIGEST_BYTES, 700, -1])
def test_damage_of_the_last_one(
    kept: Checkpoints, place: int, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(kept.path, place)
    state = kept.load(CPU)
    assert state is not None
    assert torch.equal(state["weights"], torch.full((100,), 2.0))
    assert caplog.messages == [f"{kept.path}: damaged"]
    assert capsys.readouterr().err == ""


def test_the_seconds_of_all_runs_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    for before in (0.0, 7.0, 14.0):
        kept = Checkpoints(tmp_path)
        kept.load(CPU)
        assert kept.seconds_before == before
        now += 7.0
        kept.save({"step": 1})
        # What follows the last checkpoint is lost and counts nowhere.
        now += 3.0


def test_damage_of_both_is_said_aloud(kept: Checkpoints, capsys: pytest.CaptureFixture[str]) -> None:
    flip(kept.path, 100)
    kept.before.write_bytes(b"")
    assert step_of(kept) is None
    damaged = f"{kept.path}, {kept.before}: damaged, with no other checkpoint; the training begins anew"
    assert capsys.readouterr().err == f"robustfeatures: {damaged}\n"


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.EACCES])
def test_an_error_of_the_disk_is_no_damage(kept: Checkpoints, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def fail(path: Path) -> bytes:
        raise OSError(code, "it failed", str(path))

    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_bytes", fail)
        with pytest.raises(OSError, match="it failed"):
            kept.load(CPU)
    assert step_of(kept) == 3


def test_a_device_without_room_is_no_damage(kept: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as broken:
        broken.setattr(torch, "load", fail)
        with pytest.raises(torch.OutOfMemoryError):
            kept.load(CPU)
    assert step_of(kept) == 3


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Checkpoints(tmp_path)
    order: list[str] = []
    replace = Path.replace
    monkeypatch.setattr("os.fsync", lambda _: order.append("sync"))

    def rename(path: Path, target: Path) -> Path:
        order.append(target.name)
        return replace(path, target)

    kept.save({"step": 1})
    monkeypatch.setattr(Path, "replace", rename)
    order.clear()
    kept.save({"step": 2})
    assert order == ["sync", "checkpoint-fresh.pt", "sync", "checkpoint-before.pt", "checkpoint.pt", "sync"]


def test_a_training_goes_on_only_on_the_same_model_of_gpu(tmp_path: Path) -> None:
    first, second = "cuda: NVIDIA A100, cuDNN 91002", "cuda: NVIDIA H100, cuDNN 91002"
    Checkpoints(tmp_path, DeviceModels(first)).save({"step": 1})
    assert step_of(Checkpoints(tmp_path, DeviceModels(first))) == 1
    with pytest.raises(UserError, match=f"{second}, while other parts were made on {first}; .*mix_gpu_models: true"):
        step_of(Checkpoints(tmp_path, DeviceModels(second)))
    mixed = Checkpoints(tmp_path, DeviceModels(second, may_mix=True))
    assert step_of(mixed) == 1
    mixed.save({"step": 2})
    # The first model has its part in all later states.
    with pytest.raises(UserError, match="mix_gpu_models: true"):
        step_of(Checkpoints(tmp_path, DeviceModels(second)))


def test_a_second_signal_does_not_cut_the_message(tmp_path: Path) -> None:
    """It comes when the training has given the handlers back, while the program ends."""
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(StoppedError, match="stopped by SIGTERM with a checkpoint saved"):
            _stop_twice(tmp_path)
        with pytest.raises(StoppedError, match="goes on from what is finished"):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop_twice(folder: Path) -> None:
    try:
        with Checkpoints(folder) as kept:
            signal.raise_signal(signal.SIGTERM)
            kept.save({})
    finally:
        signal.raise_signal(signal.SIGTERM)
