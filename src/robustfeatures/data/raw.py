"""Raw images, as each source module returns them, and the parts of a split."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robustfeatures.errors import UserError

# The limit for class names in study files.
LONGEST_NAME = 200


class Images(Protocol):
    """Images (N, C, H, W), indexed by rows: an array, or an object that reads them on access."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, C, H, W)."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """uint8 (0 to 255) or float32 (0 to 1)."""
        ...

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        """The images of these rows, in their order."""
        ...


@dataclass(frozen=True)
class RawData:
    """One split of a source, or its pool, in the order of the source.

    images: uint8 in 0..255, or float32 in [0, 1], (N, C, H, W) with C 1 or 3; read on access.
    labels: int64 (N,), indices into `class_names`.
    names: the file name of each image, if the source has file names.
    """

    images: Images
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    names: tuple[str, ...] | None = None

    def check(self, where: str) -> None:
        """Check shapes, types, labels and class names.

        Raises:
            UserError: one of them is wrong, or they do not fit together; the message begins with `where`.
        """
        check_arrays(self.images, self.labels, where)
        for number, name in enumerate(self.class_names):
            if len(name) > LONGEST_NAME or len(name.splitlines()) > 1:
                raise UserError(
                    f"{where}: class_names: the name of class {number} begins {name[:20]!r} and has {len(name)} "
                    f"characters; a name may have {LONGEST_NAME}, on one line"
                )
        repeated = [name for name, count in Counter(self.class_names).items() if count > 1]
        if repeated:
            raise UserError(f"{where}: class_names: {repeated[0]!r} appears twice")
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


def check_arrays(images: Images, labels: NDArray[Any], where: str) -> None:
    """Check the shapes and types of images and labels.

    Raises:
        UserError: one is wrong, or they do not fit together; the message begins with `where`.
    """
    if len(images.shape) != 4 or images.shape[1] not in (1, 3):
        raise UserError(f"{where}: images: the shape is {images.shape}, not (N, 1 or 3, height, width)")
    if 0 in images.shape[2:]:
        raise UserError(f"{where}: images: the shape is {images.shape}; height and width must be at least 1")
    if images.dtype not in (np.uint8, np.float32):
        raise UserError(f"{where}: images: the type is {images.dtype}, not uint8 or float32")
    if labels.shape != images.shape[:1]:
        raise UserError(f"{where}: labels: {labels.shape} labels for {images.shape[0]} images")


def count_classes(images: Images, labels: NDArray[Any], where: str) -> int:
    """The number of classes, if only the labels (N,) of any integer type show it: the largest label plus 1.

    Raises:
        UserError: images and labels do not fit together, a label is negative, or a label is so large that some class
            has no image.
    """
    check_arrays(images, labels, where)
    count = len(labels)
    wrong = np.flatnonzero((labels < 0) | (labels >= count))
    if len(wrong):
        raise UserError(
            f"{where}: labels: label {int(labels[wrong[0]])} of image {wrong[0]} is not among 0 to {count - 1}; "
            f"every class needs an image, and there are {count}"
        )
    return int(labels.max(initial=0)) + 1


@dataclass(frozen=True)
class Part:
    """One split of a data set while it is prepared.

    source_index: int64 (N,), the index of each image in the source's own split (or pool) `origin`.
    origin_size: the number of images in `origin`.
    """

    images: Images
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    names: tuple[str, ...] | None
    source_index: NDArray[np.int64]
    origin: str
    origin_size: int

    @classmethod
    def from_raw(cls, raw: RawData, origin: str) -> Part:
        """All images of a source's split or pool."""
        count = len(raw.labels)
        return cls(raw.images, raw.labels, raw.class_names, raw.names, np.arange(count), origin, count)

    def select(self, rows: NDArray[np.int64]) -> Part:
        """The part with only these rows (n,), in this order; no image is read."""
        return replace(
            self,
            images=SelectedImages(self.images, rows),
            labels=self.labels[rows],
            names=None if self.names is None else tuple(self.names[row] for row in rows),
            source_index=self.source_index[rows],
        )


@dataclass(frozen=True)
class SelectedImages:
    """Some rows of images, read on access."""

    images: Images
    chosen: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.chosen), *self.images.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.images.dtype

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        return self.images[self.chosen[rows]]
