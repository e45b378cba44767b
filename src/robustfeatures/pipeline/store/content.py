"""Content digests: they depend on the values in a payload, not on how it is stored."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from robustfeatures.files import hash_file
from robustfeatures.pipeline.plan.canonical import DIGEST_LENGTH

BLOCK_BYTES = 1 << 25

# The SHA-256 of files by device and inode: a shard of a data set and the block that it was are one file.
Hashes = dict[tuple[int, int], str]


def content_digest(payload: Path, hashes: Hashes | None = None) -> str:
    """The digest of one payload.

    For a zarr store it covers names, types, shapes, values and attributes, but not chunks, shards and compression. For
    any other file it covers the bytes. With `hashes` each shard is hashed just before its values are read, so that the
    disk is read once.
    """
    if payload.suffix != ".zarr":
        return hash_file(payload)[:DIGEST_LENGTH]
    import zarr

    from robustfeatures.pipeline.store.stored_images import shard_file

    hasher = hashlib.sha256()
    root = zarr.open_group(store=payload, mode="r", zarr_format=3)
    hasher.update(json.dumps(root.attrs.asdict(), sort_keys=True).encode())
    for name, array in sorted(root.members(max_depth=None)):
        if isinstance(array, zarr.Array):
            hasher.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
            # Reading whole chunks reads none of them twice.
            chunk = array.chunks[0]
            rows = chunk * max(1, BLOCK_BYTES * array.shape[0] // max(1, array.nbytes * chunk))
            count = array.shape[0]
            shard_rows = max(1, count) if array.shards is None else array.shards[0]
            for begin in range(0, count, shard_rows):
                if hashes is not None:
                    _hash_shard(payload / name / shard_file(begin // shard_rows, array.ndim), hashes)
                end = min(begin + shard_rows, count)
                for first in range(begin, end, rows):
                    hasher.update(np.ascontiguousarray(array[first : min(first + rows, end)]).data)
    return hasher.hexdigest()[:DIGEST_LENGTH]


def _hash_shard(path: Path, hashes: Hashes) -> None:
    # A shard of zeros has no file.
    if path.is_file():
        hashes[find_inode(path)] = hash_file(path)


def find_inode(path: Path) -> tuple[int, int]:
    """The device and the inode of a file, which all its hard links have in common."""
    facts = path.stat()
    return facts.st_dev, facts.st_ino
