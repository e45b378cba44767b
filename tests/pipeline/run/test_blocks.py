"""Blocks: every image is in exactly one, they do not depend on the parts, and none is made twice."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robustfeatures.engine.batches import BLOCK_BYTES, MOST_BLOCKS, choose_batch_size, choose_block_rows
from robustfeatures.errors import UserError
from robustfeatures.pipeline.run.blocks import Blocks, Share
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
    """Two different divisions of the same work run at once; each makes only blocks that the other has not made."""
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
