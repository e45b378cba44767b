"""Images of a zarr array read straight from its shards: any rows, at the speed of the disk, none kept in memory."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfeatures.errors import UserError

# zarr's sharding ends a file with 16 bytes per chunk (where it lies, how long it is) and a checksum of 4.
INDEX_ENTRY_BYTES = 16
CHECKSUM_BYTES = 4


class StoredImages:
    """Rows (N, C, H, W) of an uncompressed zarr array that is chunked and sharded by rows alone.

    zarr decodes a whole chunk for each row; here each row is one read at a place that follows from its number, checked
    once per file against the index that zarr wrote.
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
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise UserError(f"{array}: not an array of images that this package wrote") from error
        if not plain:
            raise UserError(f"{array}: the images are compressed; this package stores them as they are")
        self.row_bytes = int(np.prod(self.shape[1:])) * self.dtype.itemsize
        self._files: dict[int, int] = {}

    def __len__(self) -> int:
        return self.shape[0]

    def __del__(self) -> None:
        for descriptor in getattr(self, "_files", {}).values():
            os.close(descriptor)

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        # Whatever indexes the first axis of an array does: slices, masks, places from the end.
        rows = np.atleast_1d(np.arange(len(self))[rows])
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        target = found.reshape(-1).view(np.uint8).data
        # Neighbours that lie one after another in one file are one read.
        breaks = np.flatnonzero((np.diff(rows) != 1) | (rows[1:] % self.shard_rows == 0)) + 1
        edges = [0, *breaks.tolist(), len(rows)] if len(rows) else []
        for first, last in pairwise(edges):
            shard, place = divmod(int(rows[first]), self.shard_rows)
            piece = target[first * self.row_bytes : last * self.row_bytes]
            _read_fully(self._file(shard), piece, place * self.row_bytes, self.path)
        return found

    def _file(self, shard: int) -> int:
        if shard not in self._files:
            path = self.path.joinpath("c", str(shard), *("0" for _ in self.shape[1:]))
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except OSError as error:
                raise UserError(f"{path}: {error.strerror}") from error
            self._check_index(descriptor, path, shard)
            self._files[shard] = descriptor
        return self._files[shard]

    def _check_index(self, descriptor: int, path: Path, shard: int) -> None:
        chunks = self.shard_rows // self.chunk_rows
        used = -(-min(self.shard_rows, len(self) - shard * self.shard_rows) // self.chunk_rows)
        begin = os.fstat(descriptor).st_size - chunks * INDEX_ENTRY_BYTES - CHECKSUM_BYTES
        index = np.frombuffer(os.pread(descriptor, used * INDEX_ENTRY_BYTES, max(begin, 0)), "<u8")
        length = self.chunk_rows * self.row_bytes
        expected = np.stack([np.arange(used) * length, np.full(used, length)], axis=1).ravel()
        if begin < 0 or not np.array_equal(index, expected):
            os.close(descriptor)
            raise UserError(f"{path}: damaged: its index does not list the rows in order; run `robustfeatures verify`")


def _read_fully(descriptor: int, target: memoryview, offset: int, path: Path) -> None:
    # The system reads at most 2 GiB at once.
    while target:
        count = os.preadv(descriptor, [target], offset)
        if count == 0:
            raise UserError(f"{path}: damaged: a file ends too early; run `robustfeatures verify`")
        target, offset = target[count:], offset + count
