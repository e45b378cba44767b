"""The settings of a data set: its source, splits and operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import MinLen
from pydantic import Discriminator, StringConstraints

from robustfeatures.engine.settings import Fraction, PositiveInt, Seed, Strict

# The source chooses the class names; they may contain anything but line breaks.
ClassName = Annotated[str, StringConstraints(pattern=r"^[^\r\n]+$", max_length=200)]

Split = Literal["train", "validation", "test"]
# The name of the images of a source that has one pool in place of splits.
POOL = "all"


@dataclass(frozen=True, kw_only=True)
class KeepClasses(Strict):
    """Keep only the named classes, renumbered in the given order."""

    kind: Literal["classes"]
    keep: Annotated[tuple[ClassName, ...], MinLen(1)]
    """The names of the classes, in their new order."""


@dataclass(frozen=True, kw_only=True)
class MergeClasses(Strict):
    """Merge old classes into new ones, in the order of their first old class; other classes are dropped."""

    kind: Literal["merge"]
    groups: Annotated[Mapping[ClassName, Annotated[tuple[ClassName, ...], MinLen(1)]], MinLen(1)]
    """The old classes of each new class."""


@dataclass(frozen=True, kw_only=True)
class Relabel(Strict):
    """Give images of one class the label of another; the list of classes stays the same."""

    kind: Literal["relabel"]
    mapping: Annotated[Mapping[ClassName, ClassName], MinLen(1)]
    """The class whose label each class gets; other classes keep theirs."""


@dataclass(frozen=True, kw_only=True)
class Subset(Strict):
    """Draw images of one split, stratified by class; the other splits stay the same."""

    kind: Literal["subset"]
    split: Split
    """The split from which images are drawn."""
    samples: PositiveInt
    """The number of images to draw."""
    seed: Seed = 0
    """The seed of the draw."""
    rest: bool = False
    """Whether the images that are not drawn are kept instead."""


@dataclass(frozen=True, kw_only=True)
class KeepListed(Strict):
    """Keep only the images that a text file lists, one index or file name a line; `#` begins a comment.

    The source's other splits are kept.
    """

    kind: Literal["listed"]
    path: str
    """The text file. The path is no part of the identity."""
    sha256: str | None = None
    """The SHA-256 of the file; `robustfeatures fetch` prints it."""
    split: Literal["train", "validation", "test", "all"] = "all"
    """The source's own split in which indices count from 0; `all` is the pool of a source without splits."""


@dataclass(frozen=True, kw_only=True)
class KeepNamed(Strict):
    """Keep only the images whose file name matches a shell pattern."""

    kind: Literal["named"]
    pattern: str
    """A shell pattern for file names, such as `*.png`."""


@dataclass(frozen=True, kw_only=True)
class Concatenate(Strict):
    """Append another data set, split by split; both must have the same classes and the same image shape."""

    kind: Literal["concatenate"]
    data: Data
    """The other data set."""


Operation = Annotated[
    KeepClasses | MergeClasses | Relabel | Subset | KeepListed | KeepNamed | Concatenate, Discriminator("kind")
]


@dataclass(frozen=True, kw_only=True)
class Data(Strict):
    """A data set.

    A source has its own splits, or one pool of images. Images for the test and validation splits are drawn from the
    pool or from the source's train split, stratified by class. The path of your own files is not in the identity of the
    data set; their SHA-256 is.
    """

    source: str
    """The name of the source, such as `cifar10`, `digits` or `folder`."""
    validation: Fraction | None = None
    """The share of the images that is drawn for the validation split."""
    test: Fraction | None = None
    """The share of the images that is drawn for the test split."""
    split_seed: Seed = 0
    """The seed of the draws of both splits."""
    path: str | None = None
    """Where your own files lie."""
    sha256: str | None = None
    """The SHA-256 of your own files; `robustfeatures fetch` prints it."""
    size: PositiveInt | None = None
    """The side in pixels: the shorter side of each image is resized to it, then the centre is cropped to a square."""
    skip_unreadable: bool = False
    """Whether files that are no readable image are left out, in place of an error."""
    operations: tuple[Operation, ...] = ()
    """What is done after the splits are drawn, one operation after another."""

    def iterate_sources(self) -> Iterator[Data]:
        """Yield this data set and all data sets concatenated with it, at any depth."""
        return (data for data, _ in self.iterate_fields(""))

    def iterate_fields(self, where: str) -> Iterator[tuple[Data, str]]:
        """Yield the same data sets, each with its field; `where` is the field of this one."""
        yield self, where
        for number, operation in enumerate(self.operations):
            if isinstance(operation, Concatenate):
                yield from operation.data.iterate_fields(f"{where}.operations.{number}.data")
