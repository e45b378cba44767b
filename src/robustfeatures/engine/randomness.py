"""One seed per recipe, split per purpose and per example, so that batches, parts and resumption change no draw."""

from __future__ import annotations

import hashlib

import numpy as np


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose of a recipe, for instance `split_seed(0, "order", epoch)`."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def make_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A numpy generator for one purpose of a recipe."""
    return np.random.Generator(np.random.Philox(derive_seed(seed, *purpose)))
