"""Blocks: every image is in exactly one, they do not depend on the parts, and none is made twice."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robustfeatures.engine.batches import BLOCK_BYTES, MOST_BLOCKS, choose_batch_size, choose_block_rows
from robustfeatures.errors import UserError
from robustfeatures.pipeline.run.blocks import Blocks, Share
from robustfeatures.pipeline.run.device_models import DeviceModels
from robustfeatures.pipeline.store import lease as leases
from robustfeatures.pipeline.store.lease import HeldError
from robustfeatures.pipeline.store.store import Store


@given(st.integers(0, 60), st.integers(1, 20))
def test_parts_have_each_block_once(count: int, parts: int) -> None:
    names = [str(number) for number in range(count)]
    shares = [Share(part, parts).select(names) for part in range(1, parts + 1)]
    assert [name for share in shares for name in share] == names
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("count", "shape"),
    [(1078, (1, 8, 8)), (45_000, (3, 32, 32)), (60_000, (1, 28, 28)), (250_000, (3, 224, 224)), (3, (3, 32, 32))],
)
def test_blocks_hold_whole_batches_and_are_few(device: str, count: int, shape: tuple[int, int, int]) -> None:
    size = choose_batch_size(torch.device(device), shape)
    rows = choose_block_rows(count, size, shape)
    assert rows % size == 0
    assert size & (size - 1) == 0
    large = 4 * count * shape[0] * shape[1] * shape[2] > MOST_BLOCKS * BLOCK_BYTES
    assert -(-count // rows) <= (150 if large else MOST_BLOCKS)
    assert 4 * rows * shape[0] * shape[1] * shape[2] <= BLOCK_BYTES


def test_jobs_at_once_make_each_block_once(tmp_path: Path) -> None:
    """Two different divisions of the same work run at once. Each makes only blocks that the other has not made."""
    names = [f"train-{number}" for number in range(7)]
    made: list[str] = []

    def make(name: str, path: Path) -> None:
        made.append(name)
        path.write_text(name)

    def work(part: int, parts: int) -> None:
        Blocks(Store(tmp_path), "key", Share(part, parts)).finish(names, make)

    jobs = [threading.Thread(target=work, args=share) for share in ((1, 2), (2, 2), (1, 3), (2, 3), (3, 3), (1, 1))]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert sorted(made) == names
    blocks = Blocks(Store(tmp_path), "key", Share(1, 1))
    assert [blocks.path(name).read_text() for name in names] == names
    assert blocks.missing(names) == []
    assert blocks.check(names) >= 0


def test_blocks_of_others_come_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job does not wait while it can work, and gives up when only another's block is left."""
    monkeypatch.setattr(leases, "WAIT_SECONDS", 1.0)
    store = Store(tmp_path)
    blocks = Blocks(store, "key", Share(1, 1))
    made: list[str] = []

    def make(name: str, path: Path) -> None:
        made.append(name)
        path.write_text(name)

    with store.lease("key", "0"):
        began = time.monotonic()
        with pytest.raises(HeldError, match=r"key\.0\.lock: held by process .*; run again later"):
            blocks.finish(["0", "1", "2"], make)
        assert 1.0 <= time.monotonic() - began < 10.0
    assert made == ["1", "2"]
    blocks.finish(["0", "1", "2"], make)
    assert made == ["1", "2", "0"]


def test_a_waiting_job_looks_every_few_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    slept: list[float] = []
    now = [0.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    with store.lease("key"), monkeypatch.context() as clock:
        clock.setattr(leases.time, "sleep", sleep)
        clock.setattr(leases.time, "monotonic", lambda: now[0])
        with pytest.raises(HeldError), store.lease("key", patience=60.0):
            pass
    assert sum(slept) == 60.0
    assert min(slept) >= 2.0


def test_a_damaged_block_is_named_and_made_again(tmp_path: Path) -> None:
    blocks = Blocks(Store(tmp_path), "key", Share(1, 1))

    def make(name: str, path: Path) -> None:
        path.write_text(name)

    blocks.finish(["0", "1"], make)
    blocks.path("1").write_text("2")
    with pytest.raises(UserError, match=r"blocks/1: the block is damaged; run again"):
        blocks.check(["0", "1"])
    assert blocks.missing(["0", "1"]) == ["1"]
    blocks.finish(["0", "1"], make)
    blocks.check(["0", "1"])
    assert blocks.path("1").read_text() == "1"


@pytest.mark.parametrize("note", ["", "{}", "[]", '{"sha256": "0"}'])
def test_a_block_with_a_damaged_note_is_made_again(tmp_path: Path, note: str) -> None:
    """As after a power failure, or on a full disk."""
    blocks = Blocks(Store(tmp_path), "key", Share(1, 1))
    blocks.finish(["0", "1"], make_text)
    blocks.path("1.json").write_text(note)
    assert blocks.missing(["0", "1"]) == ["1"]
    blocks.finish(["0", "1"], make_text)
    blocks.check(["0", "1"])


def test_a_block_that_is_gone_is_made_again(tmp_path: Path) -> None:
    """Some disks remove files that nobody has read for long; the note beside the block is read at every start."""
    blocks = Blocks(Store(tmp_path), "key", Share(1, 1))
    blocks.finish(["0", "1"], make_text)
    blocks.path("1").unlink()
    with pytest.raises(UserError, match=r"blocks/1: the block is gone; run again, and it will be made anew$"):
        blocks.check(["0", "1"])
    blocks.finish(["0", "1"], make_text)
    blocks.check(["0", "1"])
    assert blocks.path("1").read_text() == "1"


def test_a_block_that_fails_is_made_alone(tmp_path: Path) -> None:
    names = ["0", "1", "2"]
    blocks = Blocks(Store(tmp_path), "key", Share(1, 1))
    made: list[str] = []

    def make(name: str, path: Path) -> None:
        made.append(name)
        path.write_text("half")
        if made == ["0", "1"]:
            raise RuntimeError("a device failed")
        path.write_text(name)

    with pytest.raises(RuntimeError):
        blocks.finish(names, make)
    assert blocks.missing(names) == ["1", "2"]
    blocks.finish(names, make)
    assert made == ["0", "1", "1", "2"]
    assert [blocks.path(name).read_text() for name in names] == names


def make_text(name: str, path: Path) -> None:
    path.write_text(name)


A100, H100 = "cuda: NVIDIA A100, cuDNN 91002", "cuda: NVIDIA H100, cuDNN 91002"


@pytest.mark.parametrize("other", [H100, A100.replace("91002", "91100"), "cpu"])
def test_blocks_of_two_devices_mix_only_if_they_may(
    tmp_path: Path, other: str, caplog: pytest.LogCaptureFixture
) -> None:
    store, names = Store(tmp_path), ["0", "1", "2"]
    Blocks(store, "key", Share(1, 2), DeviceModels(A100)).finish(names, make_text)
    second = Blocks(store, "key", Share(2, 2), DeviceModels(other))
    refusal = f"made on {other}, while other parts were made on {A100}; .*mix_gpu_models: true"
    with pytest.raises(UserError, match=refusal) as refused:
        second.finish(names, make_text)
    assert "\n" not in str(refused.value)
    assert second.missing(names) == ["1", "2"]
    Blocks(store, "key", Share(2, 2), DeviceModels(other, may_mix=True)).finish(names, make_text)
    assert f"made on {other}, while other parts were made on {A100}, as mix_gpu_models allows" in caplog.text
    # Whoever joins them is asked again, and tells where they come from.
    strict, loose = DeviceModels(), DeviceModels(may_mix=True)
    with pytest.raises(UserError, match="mix_gpu_models: true"):
        Blocks(store, "key", Share(1, 1), strict, can_make=False).finish(names, make_text)
    joined = Blocks(store, "key", Share(1, 1), loose, can_make=False)
    joined.finish(names, make_text)
    joined.check(names)
    assert loose.names == sorted([A100, other])


def test_a_job_that_makes_no_block_mixes_none(tmp_path: Path) -> None:
    names = ["0", "1"]
    Blocks(Store(tmp_path), "key", Share(1, 1), DeviceModels(A100)).finish(names, make_text)
    other = DeviceModels(H100)
    Blocks(Store(tmp_path), "key", Share(1, 1), other).finish(names, make_text)
    assert other.names == [A100]
