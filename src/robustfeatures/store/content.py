"""Content digests: what a payload says, not how it is stored."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from robustfeatures.recipes.canonical import DIGEST_LENGTH
from robustfeatures.store.files import file_sha256

ROWS_AT_A_TIME = 4096


def content_digest(payload: Path) -> str:
    """The digest of one payload: of a zarr store its names, types, shapes, values and attributes; else of the bytes.

    Chunking, sharding and compression of a zarr store do not change its digest.
    """
    if payload.suffix != ".zarr":
        return file_sha256(payload)[:DIGEST_LENGTH]
    import zarr

    hasher = hashlib.sha256()
    root = zarr.open_group(store=payload, mode="r")
    hasher.update(json.dumps(root.attrs.asdict(), sort_keys=True).encode())
    for name, array in sorted(root.members(max_depth=None)):
        if isinstance(array, zarr.Array):
            hasher.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
            for first in range(0, array.shape[0], ROWS_AT_A_TIME):
                hasher.update(np.asarray(array[first : first + ROWS_AT_A_TIME]).tobytes())
    return hasher.hexdigest()[:DIGEST_LENGTH]
