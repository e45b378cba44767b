"""Raw images before they are split: what each source module returns."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robustfeatures.errors import UserError

# As in studies, which could not name such a class.
LONGEST_NAME = 200


class Images(Protocol):
    """Images (N, C, H, W) by rows: an array, or something that reads them when they are asked for."""

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
    """One split of a source, or its whole pool, in the order of the source.

    images: uint8 in 0..255, or float32 in [0, 1], (N, C, H, W) with C 1 or 3; read only where they are asked for.
    labels: int64 (N,), an index into `class_names`.
    names: the file name of each image, where the source has one.
    """

    images: Images
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    names: tuple[str, ...] | None = None

    def check(self, where: str) -> None:
        """Raise a UserError that begins with `where` unless shapes, types and labels fit together."""
        check_arrays(self.images, self.labels, where)
        for number, name in enumerate(self.class_names):
            if len(name) > LONGEST_NAME or len(name.splitlines()) > 1:
                raise UserError(
                    f"{where}: class_names: the name of class {number} begins {name[:20]!r} and has {len(name)} "
                    f"characters; a name may have {LONGEST_NAME}, on one line"
                )
        twice = [name for name, count in Counter(self.class_names).items() if count > 1]
        if twice:
            raise UserError(f"{where}: class_names: {twice[0]!r} appears twice")
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
    """Raise a UserError that begins with `where` unless images and labels, without names of classes, fit together."""
    if len(images.shape) != 4 or images.shape[1] not in (1, 3):
        raise UserError(f"{where}: images: the shape is {images.shape}, not (N, 1 or 3, height, width)")
    if 0 in images.shape[2:]:
        raise UserError(f"{where}: images: the shape is {images.shape}; height and width must be at least 1")
    if images.dtype not in (np.uint8, np.float32):
        raise UserError(f"{where}: images: the type is {images.dtype}, not uint8 or float32")
    if labels.shape != images.shape[:1]:
        raise UserError(f"{where}: labels: {labels.shape} labels for {images.shape[0]} images")


def count_classes(images: Images, labels: NDArray[Any], where: str) -> int:
    """The number of classes where only the labels tell it, which have any type of integer: the largest, and one more.

    Raises:
        UserError: images and labels do not fit together, or a label is negative, or leaves some class without image.
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
    """One split of a data set on its way from the source to its canonical form.

    source_index: int64 (N,), the place of each image in the source's own split (or pool) `origin`, which has
        `origin_size` images.
    """

    images: Images
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    names: tuple[str, ...] | None
    source_index: NDArray[np.int64]
    origin: str
    origin_size: int

    @classmethod
    def whole(cls, raw: RawData, origin: str) -> Part:
        """All of a source's split or pool."""
        count = len(raw.labels)
        return cls(raw.images, raw.labels, raw.class_names, raw.names, np.arange(count), origin, count)

    def rows(self, rows: NDArray[np.int64]) -> Part:
        """The images of these rows, in their order; none is read."""
        return replace(
            self,
            images=SelectedImages(self.images, rows),
            labels=self.labels[rows],
            names=None if self.names is None else tuple(self.names[row] for row in rows),
            source_index=self.source_index[rows],
        )


@dataclass(frozen=True)
class SelectedImages:
    """Some rows of images, read where they are asked for."""

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
