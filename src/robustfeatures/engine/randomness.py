"""Seeds for each purpose and each image of a recipe, so that no draw depends on batches, blocks or resumption."""

from __future__ import annotations

import hashlib

import numpy as np


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose of a recipe, for instance `derive_seed(0, "order", epoch)`."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def make_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A numpy generator for one purpose of a recipe; see `derive_seed`."""
    return np.random.Generator(np.random.Philox(derive_seed(seed, *purpose)))
