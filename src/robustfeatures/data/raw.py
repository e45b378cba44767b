"""Raw images before they are split: what each source module returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robustfeatures.errors import UserError


@dataclass(frozen=True)
class RawData:
    """Images uint8 (N, C, H, W), labels int64 (N,) and one name per class, in the order of the source."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]

    def check(self, where: str) -> None:
        """Raise a UserError that begins with `where` unless shapes, types and labels fit together."""
        if self.images.ndim != 4 or self.images.shape[1] not in (1, 3):
            raise UserError(f"{where}: images: the shape is {self.images.shape}, not (N, 1 or 3, height, width)")
        if self.images.dtype != np.uint8:
            raise UserError(f"{where}: images: the type is {self.images.dtype}, not uint8")
        if self.labels.shape != self.images.shape[:1]:
            raise UserError(f"{where}: labels: {self.labels.shape} labels for {len(self.images)} images")
        classes = len(self.class_names)
        wrong = np.flatnonzero((self.labels < 0) | (self.labels >= classes))
        if len(wrong):
            raise UserError(
                f"{where}: labels: label {self.labels[wrong[0]]} of image {wrong[0]} is not among the "
                f"{classes} classes 0 to {classes - 1}"
            )
        missing = sorted(set(range(classes)) - set(self.labels.tolist()))
        if missing:
            raise UserError(f"{where}: labels: class {missing[0]} ({self.class_names[missing[0]]}) has no image")
