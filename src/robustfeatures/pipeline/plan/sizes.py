"""How many images a data set will have, and of which shape: from its study, and from the user's own files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.data.registry import Counter, Size, find_source
from robustfeatures.data.settings import POOL, Concatenate, Data, KeepListed, KeepNamed, Subset
from robustfeatures.engine.registry import load_attribute
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.pipeline.plan.recipe import Recipe


def size_below(recipe: Recipe) -> Size | None:
    """The size of the original data set that a recipe builds on; None where files cannot be counted."""
    while not isinstance(recipe.parameters, Data):
        recipe = recipe.inputs["data"]
    return _recipe_size(recipe)


# Of each data set once, since many recipes build on it and a folder may hold a million names.
@cache
def _recipe_size(recipe: Recipe) -> Size | None:
    assert isinstance(recipe.parameters, Data)
    return data_size(recipe.parameters)


def data_size(data: Data) -> Size | None:
    """The images of each split after all operations, and their shape; None where files cannot be counted.

    Shares of what is listed or named are taken to be the same in all splits of one origin. Operations on classes are
    taken to keep every image.
    """
    source = _source_size(data)
    if source is None:
        return None
    counts = _split(data, source.images)
    origins = {split: _origin(split, source.images) for split in counts}
    names = dict(source.names)

    def keep(origin: str, kept: int, of: int) -> None:
        for split in counts:
            if origins.get(split) == origin:
                counts[split] = ceil(counts[split] * kept / of)

    for operation in data.operations:
        match operation:
            case Subset(split=split, samples=samples, rest=rest):
                whole = counts.get(split, 0)
                counts[split] = max(0, whole - samples) if rest else min(whole, samples)
            case KeepListed(split=split) if split in source.images:
                whole = source.images[split]
                keep(split, min(_listed(operation, whole), whole), whole)
            case KeepNamed(pattern=pattern):
                for origin, files in names.items():
                    names[origin] = _matching(files, pattern)
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
    return None if data.path is None else _counted(size, Path(data.path))


@cache
def _counted(counter: str, path: Path) -> Size | None:
    count: Counter = load_attribute(counter)
    try:
        return count(path)
    # Damaged files raise many kinds of errors; the job that reads them says which file and why.
    except Exception:
        return None


def _split(data: Data, images: Mapping[str, int]) -> dict[str, int]:
    """The images of each split after the shares for testing and validation are drawn."""
    counts = {"train" if split == POOL else split: count for split, count in images.items()}
    whole = counts.get("train", 0)
    for split, share in (("test", data.test), ("validation", data.validation)):
        if share is not None:
            counts[split] = ceil(share * whole)
            counts["train"] = max(0, counts["train"] - counts[split])
    return counts


def _origin(split: str, images: Mapping[str, int]) -> str:
    """The split or pool of the source that a split is drawn from."""
    if POOL in images:
        return POOL
    return split if split in images else "train"


@cache
def _listed(operation: KeepListed, whole: int) -> int:
    """How many images a list names; all where it cannot be read, which the job says."""
    from robustfeatures.data.operations import read_listed_entries

    try:
        return sum(1 for _ in read_listed_entries(operation))
    except UserError:
        return whole


def _matching(files: Sequence[str], pattern: str) -> list[str]:
    """The file names that a pattern matches, as in `data.operations`."""
    whole = "/" in pattern
    return [file for file in files if fnmatchcase(file if whole else file.rpartition("/")[2], pattern)]
