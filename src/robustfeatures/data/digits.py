"""The handwritten digits in scikit-learn's wheel: 1797 real images of 8x8 pixels (Alpaydin & Kaynak, 1998)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sklearn.datasets import load_digits

from robustfeatures.data.raw import RawData
from robustfeatures.data.settings import POOL
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.data.settings import Data

# Of the grey levels (uint8, 0 to 16) followed by the labels (int64), in the order of load_digits.
SHA256 = "65e5b4619795efb40c1082f4c350c049e4ad552200d369b6ae99e21eef5e72c5"


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """The digits as one pool of images (1797, 1, 8, 8), their 17 grey levels scaled to 0 to 255; no file is read.

    Raises:
        UserError: the installed scikit-learn has other digits.
    """
    digits = load_digits()
    levels = np.ascontiguousarray(digits.images, dtype=np.uint8)
    labels = np.ascontiguousarray(digits.target, dtype=np.int64)
    found = hashlib.sha256(levels.tobytes() + labels.tobytes()).hexdigest()
    if found != SHA256:
        raise UserError(f"data.source: the digits of this scikit-learn are not the known ones (SHA-256 {found})")
    images = np.rint(levels * (255 / 16)).astype(np.uint8)[:, None]
    return {POOL: RawData(images, labels, tuple(str(name) for name in digits.target_names))}
