"""Canonical data sets on disk: one zarr group per split, images beside labels and provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from numpy.typing import NDArray

from robustfeatures.errors import UserError, suggestion

if TYPE_CHECKING:
    from torch.utils.data import TensorDataset

PROVENANCE = ("source_index", "source_label", "start_index", "target")
# A shard is one file; it holds as many whole chunks as fit in about this many bytes.
CHUNK_BYTES = 1 << 20
SHARD_BYTES = 1 << 28


@dataclass(frozen=True)
class ImageDataset:
    """One split of a data set in memory.

    images: uint8 in 0..255 (original data) or float32 in [0, 1] (derived data), (N, C, H, W).
    labels: int64 (N,), what a model is trained on or tested against.
    provenance: int64 columns (N,). `source_index` is the place of the image in the raw source; derived sets add
        `source_label` (its class there), `target` (the class of a targeted attack, else -1) and `start_index` (where
        an inversion started: a place in the raw source, or -1 for noise; -1 for attacks, which start at the image).
    """

    images: NDArray[Any]
    labels: NDArray[np.int64]
    provenance: Mapping[str, NDArray[np.int64]]
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def float_images(self) -> NDArray[np.float32]:
        """The images as float32 in [0, 1], (N, C, H, W)."""
        if self.images.dtype == np.uint8:
            return self.images.astype(np.float32) / np.float32(255)
        return self.images.astype(np.float32, copy=False)

    def to_torch(self) -> TensorDataset:
        """A torch Dataset of (image float32 in [0, 1], label) pairs."""
        import torch
        from torch.utils.data import TensorDataset

        return TensorDataset(torch.from_numpy(self.float_images()), torch.from_numpy(self.labels))


def write_dataset(path: Path, splits: Mapping[str, ImageDataset]) -> None:
    """Write the splits as one zarr store at `path`: chunked, compressed, sharded into few files."""
    root = zarr.create_group(store=path, zarr_format=3)
    class_names = next(iter(splits.values())).class_names
    root.attrs["class_names"] = list(class_names)
    for split, dataset in splits.items():
        group = root.create_group(split)
        columns = {"images": dataset.images, "labels": dataset.labels, **dataset.provenance}
        for name, values in columns.items():
            _write_array(group, name, values)


def _write_array(group: zarr.Group, name: str, values: NDArray[Any]) -> None:
    row_bytes = max(1, values.nbytes // max(1, len(values)))
    rows = min(max(1, CHUNK_BYTES // row_bytes), max(1, len(values)))
    chunks_per_shard = min(max(1, SHARD_BYTES // (rows * row_bytes)), -(-max(1, len(values)) // rows))
    array = group.create_array(
        name,
        shape=values.shape,
        dtype=values.dtype,
        chunks=(rows, *values.shape[1:]),
        shards=(rows * chunks_per_shard, *values.shape[1:]),
    )
    array[...] = values


def read_dataset(path: Path, split: str) -> ImageDataset:
    """One split of the zarr store at `path`.

    Raises:
        UserError: the store has no such split.
    """
    root = zarr.open_group(store=path, mode="r")
    if split not in root:
        raise UserError(f"{path}: no split {split!r}{suggestion(split, root.group_keys())}")
    group = root[split]
    class_names = root.attrs["class_names"]
    assert isinstance(group, zarr.Group)
    assert isinstance(class_names, list)
    columns = {name: np.asarray(array[...]) for name, array in group.arrays()}
    return ImageDataset(
        images=columns.pop("images"),
        labels=columns.pop("labels"),
        provenance={name: columns[name] for name in PROVENANCE if name in columns},
        class_names=tuple(map(str, class_names)),
    )


def splits_of(path: Path) -> tuple[str, ...]:
    """The names of the splits in the zarr store at `path`, sorted."""
    return tuple(sorted(zarr.open_group(store=path, mode="r").group_keys()))
