"""Content digests: they depend on the values in a payload, not on how it is stored."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from robustfeatures.files import hash_file
from robustfeatures.pipeline.plan.canonical import DIGEST_LENGTH

BLOCK_BYTES = 1 << 25


def content_digest(payload: Path) -> str:
    """The digest of one payload.

    For a zarr store it covers names, types, shapes, values and attributes, but not chunks, shards and compression. For
    any other file it covers the bytes.
    """
    if payload.suffix != ".zarr":
        return hash_file(payload)[:DIGEST_LENGTH]
    import zarr

    hasher = hashlib.sha256()
    root = zarr.open_group(store=payload, mode="r", zarr_format=3)
    hasher.update(json.dumps(root.attrs.asdict(), sort_keys=True).encode())
    for name, array in sorted(root.members(max_depth=None)):
        if isinstance(array, zarr.Array):
            hasher.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
            # Reading whole chunks reads none of them twice.
            chunk = array.chunks[0]
            rows = chunk * max(1, BLOCK_BYTES * array.shape[0] // max(1, array.nbytes * chunk))
            for first in range(0, array.shape[0], rows):
                hasher.update(np.ascontiguousarray(array[first : first + rows]).data)
    return hasher.hexdigest()[:DIGEST_LENGTH]
