"""What says which images a data set holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import MinLen
from pydantic import Discriminator, StringConstraints

from robustfeatures.engine.settings import Fraction, PositiveInt, Seed, Strict

# Class names are the source's own and may hold anything but line breaks.
ClassName = Annotated[str, StringConstraints(pattern=r"^[^\r\n]+$", max_length=200)]


Split = Literal["train", "validation", "test"]
# The name of what a source brings in place of splits, where it brings one pool of images.
POOL = "all"


@dataclass(frozen=True, kw_only=True)
class KeepClasses(Strict):
    """Only the named classes, numbered anew in the order given."""

    kind: Literal["classes"]
    keep: Annotated[tuple[ClassName, ...], MinLen(1)]


@dataclass(frozen=True, kw_only=True)
class MergeClasses(Strict):
    """New classes, each of one or several old ones, in the order of their first old class; the rest is dropped."""

    kind: Literal["merge"]
    groups: Annotated[Mapping[ClassName, Annotated[tuple[ClassName, ...], MinLen(1)]], MinLen(1)]


@dataclass(frozen=True, kw_only=True)
class Relabel(Strict):
    """Images of one class take the label of another; the list of classes stays as it is."""

    kind: Literal["relabel"]
    mapping: Annotated[Mapping[ClassName, ClassName], MinLen(1)]


@dataclass(frozen=True, kw_only=True)
class Subset(Strict):
    """`samples` images of one split, drawn stratified by class, or with `rest` all others of it.

    The other splits stay as they are.
    """

    kind: Literal["subset"]
    split: Split
    samples: PositiveInt
    seed: Seed = 0
    rest: bool = False


@dataclass(frozen=True, kw_only=True)
class KeepListed(Strict):
    """Only the images that a text file lists, one index or file name a line; `#` begins a comment.

    The list lies at `path`, and its SHA-256 says what it holds. An index counts from 0 in the source's own split
    (`train` or `test` as published, or `all` where it has none), which `split` names; images of the source's other
    splits are kept.
    """

    kind: Literal["listed"]
    path: str
    sha256: str | None = None
    split: Literal["train", "validation", "test", "all"] = "all"


@dataclass(frozen=True, kw_only=True)
class KeepNamed(Strict):
    """Only the images whose file name matches a shell pattern."""

    kind: Literal["named"]
    pattern: str


@dataclass(frozen=True, kw_only=True)
class Concatenate(Strict):
    """Another data set after this one, split by split; both must have the same classes and the same image shape."""

    kind: Literal["concatenate"]
    data: Data


Operation = Annotated[
    KeepClasses | MergeClasses | Relabel | Subset | KeepListed | KeepNamed | Concatenate, Discriminator("kind")
]


@dataclass(frozen=True, kw_only=True)
class Data(Strict):
    """Raw images in their canonical form.

    A source brings its own splits, or one pool of images. `test` is the share of the pool that is drawn for testing, or
    of the source's train split where it brings no test split; `validation` the same for validation; both are stratified
    by class. The user's own files lie at `path`, which is no part of what they are: their SHA-256 is.
    `size` resizes the shorter side of each image, then crops the centre to a square. `operations` follow the split.
    """

    source: str
    validation: Fraction | None = None
    test: Fraction | None = None
    split_seed: Seed = 0
    path: str | None = None
    sha256: str | None = None
    size: PositiveInt | None = None
    skip_unreadable: bool = False
    operations: tuple[Operation, ...] = ()

    def iterate_sources(self) -> Iterator[Data]:
        """This data set and those that it is concatenated with, at any depth."""
        return (data for data, _ in self.iterate_fields(""))

    def iterate_fields(self, where: str) -> Iterator[tuple[Data, str]]:
        """The same, each with its field, where this one is in the field `where`."""
        yield self, where
        for number, operation in enumerate(self.operations):
            if isinstance(operation, Concatenate):
                yield from operation.data.iterate_fields(f"{where}.operations.{number}.data")
