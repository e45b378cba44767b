"""Stage derived: data sets in which robust or non-robust features have been isolated (not-bugs-2019, Section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robustfeatures.derived.generation import choose_rows_per_block, derive_splits, generate_images
from robustfeatures.pipeline.store.datasets import ShardedSplit, join_shards, write_shard

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset
    from robustfeatures.derived.derivation import Derivation
    from robustfeatures.derived.settings import Derived
    from robustfeatures.pipeline.run.job import Job


def make(parameters: Derived, folder: Path, job: Job) -> None:
    """Write `data.zarr` with the derived splits. Its shards are the blocks that several jobs may share."""
    with job.computing():
        found, batch_size = derive_splits(parameters, job)
    splits = {name: _Split(name, derivation, job.dataset("data", name), job) for name, derivation in found.items()}
    blocks = {name: (split, number) for split in splits.values() for number, name in enumerate(split.blocks)}
    expected = sum(split.steps(number) for split, number in map(blocks.__getitem__, job.blocks.missing(list(blocks))))
    done = 0

    def block(name: str, path: Path) -> None:
        nonlocal done
        split, number = blocks[name]
        before = done

        def progress(steps: int) -> None:
            job.progress(before + steps, max(expected, before + steps))

        with job.computing():
            images = generate_images(split.derivation, split.rows(number), split.shape[1:], batch_size, progress)
        write_shard(path, split.name, number, images, shape=split.shape, shard_rows=split.shard_rows)
        done += split.steps(number)

    job.blocks.finish(list(blocks), block)
    if job.blocks.is_whole:
        with job.blocks.read():
            join_shards(folder / "data.zarr", {name: split.sharded() for name, split in splits.items()})


@dataclass(frozen=True)
class _Split:
    """A split that is derived, cut into blocks."""

    name: str
    derivation: Derivation
    original: ImageDataset
    job: Job

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.derivation), *self.original.image_shape)

    @cached_property
    def shard_rows(self) -> int:
        return choose_rows_per_block(self.derivation, self.original.image_shape, self.job.planned_device)

    @property
    def blocks(self) -> list[str]:
        # Another kind of device cuts the split into other blocks, so the name holds the kind.
        count = -(-len(self.derivation) // self.shard_rows)
        return [f"{self.job.planned_device.type}-{self.name}-{number}" for number in range(count)]

    def rows(self, number: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        first = number * self.shard_rows
        return np.arange(first, min(first + self.shard_rows, len(self.derivation)))

    def steps(self, number: int) -> int:
        """The work of a block: images times steps."""
        return self.derivation.steps * len(self.rows(number))

    def sharded(self) -> ShardedSplit:
        """The split, once all its blocks are finished."""
        return ShardedSplit(
            shape=self.shape,
            dtype=self.derivation.dtype,
            labels=self.derivation.labels,
            provenance=self.derivation.provenance,
            class_names=self.original.class_names,
            shard_rows=self.shard_rows,
            shards=[self.job.blocks.path(name) for name in self.blocks],
        )
