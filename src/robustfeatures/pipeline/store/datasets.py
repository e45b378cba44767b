"""Data sets on disk: one zarr group per split, with images, labels and provenance."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import LocalStore

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.pixels import Statistics, channel_statistics
from robustfeatures.errors import UserError, suggest
from robustfeatures.files import link_or_copy
from robustfeatures.pipeline.store.stored_images import StoredImages, shard_file

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer

# The split that networks are trained on, and the attribute with the statistics that normalise pixels. These follow from
# the images, so content digests leave them out.
TRAIN, STATISTICS = "train", "channel_statistics"
PROVENANCE = ("source_index", "source_label", "start_index", "target")
# Rows are read and written in chunks of about this many bytes.
CHUNK_BYTES = 1 << 20
# A shard is one file, and is in memory while it is written.
SHARD_BYTES = 1 << 28
# The largest number of shards of an array, so that a data set has few files.
MOST_SHARDS = 40


def write_dataset(path: Path, splits: Mapping[str, ImageDataset]) -> None:
    """Write the splits as one zarr store at `path`, chunked and sharded into few files, one shard after the other.

    Raises:
        UserError: images of type float32 are not in [0, 1].
    """
    root = _create(path, splits)
    for split, dataset in splits.items():
        images = create_array(root.require_group(split), "images", dataset.images.shape, dataset.images.dtype)
        for rows in shard_rows_of(images):
            images[rows[0] : rows[-1] + 1] = _check_range(dataset.images[rows], split)
    _write_statistics(path, root)


def write_shard(
    path: Path, split: str, number: int, images: NDArray[Any], *, shape: tuple[int, ...], shard_rows: int
) -> None:
    """Write the `images` (n, C, H, W) of one shard as a file for `join_shards`. `shape` is that of the whole split.

    Raises:
        UserError: the images are not in [0, 1].
    """
    folder = path.with_name(f"{path.name}.zarr")
    shutil.rmtree(folder, ignore_errors=True)
    array = create_array(zarr.create_group(store=_Folder(folder)), "images", shape, images.dtype, shard_rows)
    first = number * shard_rows
    array[first : first + len(images)] = _check_range(images, split)
    (folder / "images" / shard_file(number, array.ndim)).replace(path)
    shutil.rmtree(folder)


@dataclass(frozen=True)
class ShardedSplit:
    """One split whose images, `shape` (N, C, H, W), lie in files of `shard_rows` images each."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    labels: NDArray[np.int64]
    provenance: Mapping[str, NDArray[np.int64]]
    class_names: tuple[str, ...]
    shard_rows: int
    shards: Sequence[Path]


def join_shards(path: Path, splits: Mapping[str, ShardedSplit]) -> None:
    """Write the splits as one zarr store at `path`, with hard links to their shards."""
    root = _create(path, splits)
    for name, split in splits.items():
        array = create_array(root.require_group(name), "images", split.shape, split.dtype, split.shard_rows)
        for number, shard in enumerate(split.shards):
            place = path / name / "images" / shard_file(number, array.ndim)
            place.parent.mkdir(parents=True)
            link_or_copy(shard, place)
    _write_statistics(path, root)


def _write_statistics(path: Path, root: zarr.Group) -> None:
    """Write mean and standard deviation of the channels of the train split, so that no training reads it for them."""
    if TRAIN in root:
        mean, std = channel_statistics(StoredImages(path / TRAIN / "images"))
        root.require_group(TRAIN).attrs[STATISTICS] = {"mean": mean.tolist(), "std": std.tolist()}


def _read_statistics(group: zarr.Group, channels: int, folder: Path) -> Statistics | None:
    """What `_write_statistics` wrote; None for a payload without it."""
    found: Any = group.attrs.get(STATISTICS)
    if found is None:
        return None
    with _explain_errors(folder / "zarr.json", f"damaged: {STATISTICS}"):
        mean, std = (np.array(found[name], dtype=np.float64).reshape(channels) for name in ("mean", "std"))
    return mean, std


class _Folder(LocalStore):
    """A folder that only one job writes. It needs none of the hard links with which zarr finds out who was first."""

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        if not await self.exists(key):
            await self.set(key, value)


def _create(path: Path, splits: Mapping[str, ImageDataset] | Mapping[str, ShardedSplit]) -> zarr.Group:
    """A store with everything except the images."""
    root = zarr.create_group(store=_Folder(path), zarr_format=3)
    root.attrs["class_names"] = list(next(iter(splits.values())).class_names)
    for split, dataset in splits.items():
        group = root.create_group(split)
        for name, values in {"labels": dataset.labels, **dataset.provenance}.items():
            create_array(group, name, values.shape, values.dtype)[...] = values
    return root


def _check_range(images: NDArray[Any], split: str) -> NDArray[Any]:
    if images.dtype.kind == "f" and not (images.min() >= 0 and images.max() <= 1):
        raise UserError(f"images: split {split}: values from {images.min()} to {images.max()}, not in [0, 1]")
    return images


def create_array(
    group: zarr.Group, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], shard_rows: int | None = None
) -> zarr.Array[Any]:
    """An empty array of rows. Images are not compressed, so that `StoredImages` can compute the place of each row.

    `shard_rows`, the rows of each file, is best a multiple of a large power of two, because chunks divide it.
    """
    row_bytes = int(np.prod(shape[1:])) * dtype.itemsize
    shard = shard_rows or min(max(SHARD_BYTES // row_bytes, -(-shape[0] // MOST_SHARDS)), shape[0])
    chunk = min(max(1, CHUNK_BYTES // row_bytes), shard)
    if shard_rows is not None:
        chunk = math.gcd(shard_rows, 1 << (chunk.bit_length() - 1))
    return group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=(chunk, *shape[1:]),
        shards=(-(-shard // chunk) * chunk, *shape[1:]),
        compressors=None if name == "images" else "auto",
        config={"write_empty_chunks": True},
    )


def shard_rows_of(array: zarr.Array[Any]) -> Iterable[NDArray[np.int64]]:
    """The rows of each shard in turn. Writing a whole shard at once never reads it back."""
    assert array.shards is not None
    for first in range(0, array.shape[0], array.shards[0]):
        yield np.arange(first, min(first + array.shards[0], array.shape[0]))


def read_dataset(path: Path, split: str, *, in_memory: bool = True) -> ImageDataset:
    """One split of the zarr store at `path`; its images are an array, or are read from disk when they are indexed.

    Raises:
        UserError: the store was not written by this package, is damaged, or has no such split.
    """
    class_names = _read_class_names(_open_group(path), path)
    splits = _split_names(path)
    if split not in splits:
        raise UserError(f"{path}: no split {split!r}{suggest(split, splits)}")
    folder = path / split
    group = _open_group(folder)
    stored = _open_images(folder / "images")
    labels = _read_column(folder / "labels", len(stored))
    wrong = labels[(labels < 0) | (labels >= len(class_names))]
    if len(wrong):
        raise UserError(f"{folder / 'labels'}: damaged: {wrong[0]} is not among the {len(class_names)} classes")
    with _explain_errors(stored.path):
        images = stored[np.arange(len(stored))] if in_memory else stored
    return ImageDataset(
        images=images,
        labels=labels,
        provenance={name: _read_column(folder / name, len(stored)) for name in PROVENANCE if (folder / name).exists()},
        class_names=class_names,
        statistics=_read_statistics(group, stored.shape[1], folder),
    )


def list_splits(path: Path) -> tuple[str, ...]:
    """The names of the splits in the zarr store at `path`, sorted."""
    _open_group(path)
    return _split_names(path)


def _split_names(path: Path) -> tuple[str, ...]:
    # zarr would ignore a folder whose zarr.json is missing.
    return tuple(sorted(child.name for child in path.iterdir() if child.is_dir() and not child.name.startswith(".")))


def _read_class_names(root: zarr.Group, path: Path) -> tuple[str, ...]:
    class_names = root.attrs.get("class_names")
    if not isinstance(class_names, list) or not class_names:
        raise UserError(f"{path / 'zarr.json'}: class_names: damaged or missing; they must be a list of names")
    return tuple(map(str, class_names))


def _open_images(folder: Path) -> StoredImages:
    with _explain_errors(folder):
        stored = StoredImages(folder)
    sizes = (*stored.shape, stored.shard_rows, stored.chunk_rows)
    whole = len(stored.shape) == 4 and all(isinstance(size, int) and size > 0 for size in sizes)
    if not whole or stored.shard_rows % stored.chunk_rows or stored.dtype not in (np.uint8, np.float32):
        raise UserError(f"{folder}: damaged: its zarr.json does not describe images")
    return stored


def _read_column(folder: Path, count: int) -> NDArray[np.int64]:
    """The labels, or one column of provenance, of `count` images, from the zarr array in a folder."""
    with _explain_errors(folder):
        # Arrays of zarr format 2 may request a codec that unpickles.
        array = zarr.open_array(store=folder, mode="r", zarr_format=3)
        if array.shape != (count,) or array.dtype.kind not in "iu":
            raise UserError(
                f"{folder}: damaged: {array.dtype} {array.shape}, not an integer for each of {count} images"
            )
        rows = (array.shards or array.chunks)[0]
        for number in range(-(-count // rows)):
            file = folder / array.metadata.encode_chunk_key((number,))
            # zarr would read a missing file as zeros.
            if not file.is_file():
                raise UserError(f"{file}: there is no such file")
        return np.asarray(array[...])


def _open_group(path: Path) -> zarr.Group:
    with _explain_errors(path, "not a data set that this package wrote"):
        return zarr.open_group(store=path, mode="r", zarr_format=3)


@contextmanager
def _explain_errors(path: Path, otherwise: str = "damaged, or not written by this package") -> Iterator[None]:
    """Turn any error of zarr into a UserError that begins with `path`."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:  # zarr and its codecs raise many kinds for damaged content
        reason = error.strerror if isinstance(error, OSError) else None
        raise UserError(f"{path}: {reason or otherwise}") from error
