"""Read any rows of a zarr array of images straight from its memory-mapped shards, at the speed of the disk."""

from __future__ import annotations

import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfeatures.errors import UserError
from robustfeatures.files import ABSENT
from robustfeatures.pipeline.store.sealed import MANIFEST, read_sealed
from robustfeatures.pipeline.store.verified import check_file

# A shard file of zarr ends with 16 bytes per chunk (its offset and length) and a checksum of 4 bytes.
INDEX_ENTRY_BYTES = 16
CHECKSUM_BYTES = 4


def shard_file(number: int, dimensions: int) -> Path:
    """The path of a shard below the folder of an array that is sharded by rows alone."""
    return Path("c", str(number), *("0" for _ in range(dimensions - 1)))


class StoredImages:
    """Rows (N, C, H, W) of an uncompressed zarr array that is chunked and sharded by rows alone.

    zarr decodes a whole chunk for each row. Here the number of a row gives its place in the file, which is checked once
    per file against zarr's index. The mapped files are in the system's page cache, which it can shrink at any time.

    In a payload of the store, the SHA-256 of each file is checked before it is first read.
    """

    def __init__(self, array: Path) -> None:
        """Open the array in the folder `array`.

        Raises:
            UserError: the array is not laid out as this package writes images.
        """
        self.path = array
        try:
            metadata = json.loads((array / "zarr.json").read_text())
            sharding = metadata["codecs"][0]["configuration"]
            plain = [codec["name"] for codec in sharding["codecs"]] == ["bytes"]
            self.shape: tuple[int, ...] = tuple(metadata["shape"])
            self.dtype: np.dtype[Any] = np.dtype(metadata["data_type"])
            self.shard_rows: int = metadata["chunk_grid"]["configuration"]["chunk_shape"][0]
            self.chunk_rows: int = sharding["chunk_shape"][0]
        except OSError as error:
            raise UserError(f"{error.filename}: {error.strerror}") from error
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise UserError(f"{array}: not an array of images that this package wrote") from error
        if not plain:
            raise UserError(f"{array}: the images are compressed; this package stores them as they are")
        self.row_bytes = int(np.prod(self.shape[1:])) * self.dtype.itemsize
        self._files: dict[int, NDArray[Any]] = {}

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        rows = np.asarray(rows) if isinstance(rows, np.ndarray) else np.arange(len(self))[rows]
        if rows.dtype.kind not in "iu" or rows.ndim != 1:
            rows = np.atleast_1d(np.arange(len(self))[rows])
        if not len(rows):
            return np.empty((0, *self.shape[1:]), self.dtype)
        lowest, highest = rows.min(), rows.max()
        if lowest < 0 or highest >= len(self):
            # numpy resolves negative rows, and raises its own error for rows out of range.
            rows = np.arange(len(self))[rows]
            lowest, highest = rows.min(), rows.max()
        shard = int(lowest) // self.shard_rows
        if shard == highest // self.shard_rows:
            # The rows were checked above. With "clip" numpy does not check them again.
            return self._file(shard).take(rows - shard * self.shard_rows, axis=0, mode="clip")
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for target, row in zip(found, rows.tolist(), strict=True):
            target[...] = self._file(row // self.shard_rows)[row % self.shard_rows]
        return found

    @cached_property
    def _published(self) -> dict[str, Any] | None:
        """The files of the payload that the images belong to; None if they are in no store."""
        manifest = self.path.absolute().parents[2] / MANIFEST
        try:
            files: dict[str, Any] = read_sealed(manifest)["files"]
        except ABSENT:
            return None
        except ValueError as error:
            raise UserError(f"{manifest}: damaged; run `robustfeatures verify`") from error
        return files

    def _check_digest(self, path: Path) -> None:
        if self._published is not None:
            name = str(path.absolute().relative_to(self.path.absolute().parents[2]))
            check_file(path, self._published.get(name, {}).get("sha256", ""))

    def _file(self, shard: int) -> NDArray[Any]:
        if shard not in self._files:
            path = self.path / shard_file(shard, len(self.shape))
            rows = min(self.shard_rows, len(self) - shard * self.shard_rows)
            try:
                self._check_digest(path)
                self._check_index(path, rows)
                mapped = np.memmap(path, self.dtype, "r", shape=(rows, *self.shape[1:]))
                self._files[shard] = mapped.view(np.ndarray)
            except OSError as error:
                raise UserError(f"{path}: {error.strerror}") from error
        return self._files[shard]

    def _check_index(self, path: Path, rows: int) -> None:
        chunks, used = self.shard_rows // self.chunk_rows, -(-rows // self.chunk_rows)
        with path.open("rb") as file:
            begin = file.seek(0, os.SEEK_END) - chunks * INDEX_ENTRY_BYTES - CHECKSUM_BYTES
            file.seek(max(begin, 0))
            content = file.read(used * INDEX_ENTRY_BYTES)
        # The index of a truncated file may end within a number.
        index = np.frombuffer(content, "<u8", count=len(content) // 8)
        length = self.chunk_rows * self.row_bytes
        expected = np.stack([np.arange(used) * length, np.full(used, length)], axis=1).ravel()
        if begin < 0 or not np.array_equal(index, expected):
            raise UserError(f"{path}: damaged: its index does not list the rows in order; run `robustfeatures verify`")
