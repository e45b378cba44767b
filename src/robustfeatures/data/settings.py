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


@dataclass(frozen=True, kw_only=True)
class MergeClasses(Strict):
    """Merge old classes into new ones, in the order of their first old class; other classes are dropped."""

    kind: Literal["merge"]
    groups: Annotated[Mapping[ClassName, Annotated[tuple[ClassName, ...], MinLen(1)]], MinLen(1)]


@dataclass(frozen=True, kw_only=True)
class Relabel(Strict):
    """Give images of one class the label of another; the list of classes stays the same."""

    kind: Literal["relabel"]
    mapping: Annotated[Mapping[ClassName, ClassName], MinLen(1)]


@dataclass(frozen=True, kw_only=True)
class Subset(Strict):
    """Draw `samples` images of one split, stratified by class; with `rest`, keep all its other images instead.

    The other splits stay the same.
    """

    kind: Literal["subset"]
    split: Split
    samples: PositiveInt
    seed: Seed = 0
    rest: bool = False


@dataclass(frozen=True, kw_only=True)
class KeepListed(Strict):
    """Keep only the images that a text file lists, one index or file name a line; `#` begins a comment.

    The list is the file at `path`, which must have the SHA-256 `sha256`. An index counts from 0 in `split`, one of the
    source's own splits (`train` or `test` as published), or `all` for a pool. The source's other splits are kept.
    """

    kind: Literal["listed"]
    path: str
    sha256: str | None = None
    split: Literal["train", "validation", "test", "all"] = "all"


@dataclass(frozen=True, kw_only=True)
class KeepNamed(Strict):
    """Keep only the images whose file name matches a shell pattern."""

    kind: Literal["named"]
    pattern: str


@dataclass(frozen=True, kw_only=True)
class Concatenate(Strict):
    """Append another data set, split by split; both must have the same classes and the same image shape."""

    kind: Literal["concatenate"]
    data: Data


Operation = Annotated[
    KeepClasses | MergeClasses | Relabel | Subset | KeepListed | KeepNamed | Concatenate, Discriminator("kind")
]


@dataclass(frozen=True, kw_only=True)
class Data(Strict):
    """A data set.

    A source has its own splits, or one pool of images. `test` and `validation` are the shares drawn for these splits,
    stratified by class: from the pool, or from the source's train split. The user's own files lie at `path`. The path
    is not in the identity of the data set; `sha256` is. `size` resizes the shorter side of each image, then crops the
    centre to a square. `operations` follow the split, in order.
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
        """Yield this data set and all data sets concatenated with it, at any depth."""
        return (data for data, _ in self.iterate_fields(""))

    def iterate_fields(self, where: str) -> Iterator[tuple[Data, str]]:
        """Yield the same data sets, each with its field; `where` is the field of this one."""
        yield self, where
        for number, operation in enumerate(self.operations):
            if isinstance(operation, Concatenate):
                yield from operation.data.iterate_fields(f"{where}.operations.{number}.data")
