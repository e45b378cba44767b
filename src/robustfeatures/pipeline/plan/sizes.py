"""The number and shape of a data set's images before they are read: from the study and from the user's own files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.data.registry import Counter, Size, find_source
from robustfeatures.data.settings import (
    POOL,
    Concatenate,
    Data,
    KeepClasses,
    KeepListed,
    KeepNamed,
    MergeClasses,
    Subset,
)
from robustfeatures.engine.registry import load_attribute
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.pipeline.plan.recipe import Recipe


def original_data(recipe: Recipe) -> Recipe:
    """The original data set that a recipe builds on."""
    while not isinstance(recipe.parameters, Data):
        recipe = recipe.inputs["data"]
    return recipe


def original_data_size(recipe: Recipe) -> Size | None:
    """The size of the original data set that a recipe builds on; None if its files cannot be counted."""
    return _recipe_size(original_data(recipe))


# Counted once for each data set, because many recipes build on it and a folder may hold a million names.
@cache
def _recipe_size(recipe: Recipe) -> Size | None:
    assert isinstance(recipe.parameters, Data)
    return data_size(recipe.parameters)


def data_size(data: Data) -> Size | None:
    """The number of images of each split after all operations, and their shape; None if files cannot be counted.

    This assumes that a list or a pattern selects the same share of every split of one origin, and that all classes are
    equally large. Where the number of classes is unknown, operations on them are taken to keep every image.
    """
    source = _source_size(data)
    if source is None:
        return None
    counts = _count_splits(data, source.images)
    origins = {split: _origin(split, source.images) for split in counts}
    names = dict(source.names)
    classes = find_source(data.source).classes

    def keep(origin: str, kept: int, of: int) -> None:
        for split in counts:
            if origins.get(split) == origin:
                counts[split] = ceil(counts[split] * kept / of)

    def keep_classes(kept: int, new: int) -> None:
        nonlocal classes
        if classes is not None:
            counts.update({split: ceil(count * min(kept, classes) / classes) for split, count in counts.items()})
            classes = new

    for operation in data.operations:
        match operation:
            case KeepClasses(keep=kept):
                keep_classes(len(kept), len(kept))
            case MergeClasses(groups=groups):
                keep_classes(sum(map(len, groups.values())), len(groups))
            case Subset(split=split, samples=samples, rest=rest):
                whole = counts.get(split, 0)
                counts[split] = max(0, whole - samples) if rest else min(whole, samples)
            case KeepListed(split=split) if split in source.images:
                whole = source.images[split]
                keep(split, min(_count_listed(operation, whole), whole), whole)
            case KeepNamed(pattern=pattern):
                for origin, files in names.items():
                    names[origin] = _match_names(files, pattern)
                    keep(origin, len(names[origin]), max(1, len(files)))
            case Concatenate(data=other):
                joined = data_size(other)
                if joined is None:
                    return None
                counts = {
                    split: counts.get(split, 0) + joined.images.get(split, 0) for split in {**counts, **joined.images}
                }
                names = {}
    channels, height, width = source.shape
    return Size(counts, (channels, data.size or height, data.size or width))


def _source_size(data: Data) -> Size | None:
    size = find_source(data.source).size
    if isinstance(size, Size):
        return size
    return None if data.path is None else _count_files(size, Path(data.path))


@cache
def _count_files(counter: str, path: Path) -> Size | None:
    count: Counter = load_attribute(counter)
    try:
        return count(path)
    # Damaged files raise many kinds of errors. The job that reads them names the file and the error.
    except Exception:
        return None


def _count_splits(data: Data, images: Mapping[str, int]) -> dict[str, int]:
    """The number of images of each split after the test and validation shares are split off."""
    counts = {"train" if split == POOL else split: count for split, count in images.items()}
    whole = counts.get("train", 0)
    for split, share in (("test", data.test), ("validation", data.validation)):
        if share is not None:
            # Rounded as in `data.preparation`: 0.55 * 100 is slightly more than 55 in floating point.
            counts[split] = ceil(share * whole - 1e-9)
            counts["train"] = max(0, counts.get("train", 0) - counts[split])
    return counts


def _origin(split: str, images: Mapping[str, int]) -> str:
    """The split or pool of the source that a split comes from."""
    if POOL in images:
        return POOL
    return split if split in images else "train"


@cache
def _count_listed(operation: KeepListed, whole: int) -> int:
    """How many images a list names; `whole` if it cannot be read, which is an error of the job."""
    from robustfeatures.data.operations import read_listed_entries

    try:
        return sum(1 for _ in read_listed_entries(operation))
    except UserError:
        return whole


def _match_names(files: Sequence[str], pattern: str) -> list[str]:
    """The file names that a pattern matches, as in `data.operations`."""
    whole = "/" in pattern
    return [file for file in files if fnmatchcase(file if whole else file.rpartition("/")[2], pattern)]
