"""The digits as splits of a data set."""

from __future__ import annotations

import numpy as np

from robustfeatures.data.dataset import ImageDataset
from tests.conftest import Digits


def split_of(digits: Digits, rows: slice, labels: np.ndarray | None = None) -> ImageDataset:
    """These digits. Where `labels` are given, they replace the classes, which stay as `source_label`."""
    own = digits.labels[rows].numpy()
    return ImageDataset(
        images=digits.images[rows].numpy(),
        labels=own if labels is None else labels,
        provenance={"source_index": np.arange(len(own)), **({} if labels is None else {"source_label": own})},
        class_names=tuple(map(str, range(10))),
    )
