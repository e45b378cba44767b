"""The operations on a data set after its split: choose, merge, relabel and concatenate, without reading an image."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robustfeatures.data.raw import Images, Part
from robustfeatures.data.settings import (
    Concatenate,
    Data,
    KeepClasses,
    KeepListed,
    KeepNamed,
    MergeClasses,
    Operation,
    Relabel,
    Subset,
)
from robustfeatures.errors import UserError, suggest

if TYPE_CHECKING:
    from PIL.Image import Image

# The origin of a part joined from two. Its source indices refer to two sources, so no list can name them.
CONCATENATED = "concatenated"
DROPPED = -1
# The most characters of a list entry that a message quotes.
LONGEST_SHOWN = 60


def apply_operation(
    parts: Mapping[str, Part], operation: Operation, load: Callable[[Data], Mapping[str, Part]]
) -> dict[str, Part]:
    """The splits after one operation, each in its old order; `load` loads the data set to concatenate.

    Raises:
        UserError: the operation names an unknown class, split, file or image; draws more images than there are;
            concatenates data sets that differ in classes or image shape; or leaves a class without image in a split.
    """
    match operation:
        case KeepClasses():
            after = _keep_classes(parts, operation)
        case MergeClasses():
            after = _merge_classes(parts, operation)
        case Relabel():
            after = _relabel(parts, operation)
        case Subset():
            after = _draw_subset(parts, operation)
        case KeepListed():
            after = _keep_listed(parts, operation)
        case KeepNamed():
            after = {split: _keep_named(part, operation) for split, part in parts.items()}
        case Concatenate():
            after = _concatenate(parts, load(operation.data))
    for split, part in after.items():
        _check_classes(part, split, operation)
    return after


@dataclass(frozen=True)
class JoinedImages:
    """Several sets of images, one after another, read on access.

    All have the same dtype and the same (C, H, W).
    """

    parts: tuple[Images, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(part.shape[0] for part in self.parts), *self.parts[0].shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.parts[0].dtype

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        ends = np.cumsum([part.shape[0] for part in self.parts])
        owners = np.searchsorted(ends, rows, side="right")
        images = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for owner in np.unique(owners):
            places = np.flatnonzero(owners == owner)
            images[places] = self.parts[owner][rows[places] - (ends[owner] - self.parts[owner].shape[0])]
        return images


@dataclass(frozen=True)
class ResizedImages:
    """Images (N, C, size, size), resized on access; uint8 stays uint8, float32 stays float32."""

    images: Images
    size: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.images.shape[:2], self.size, self.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.images.dtype

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        from PIL import Image

        resized = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for place, image in zip(resized, self.images[rows], strict=True):
            for channel, plane in zip(place, image, strict=True):
                channel[...] = np.asarray(crop_square(Image.fromarray(plane), self.size))
        # Interpolation in floating point may leave [0, 1] by a rounding error.
        return np.clip(resized, 0, 1) if self.dtype == np.float32 else resized


def crop_square(image: Image, size: int) -> Image:
    """The image with its shorter side resized to `size` pixels (bilinear, antialiased), cut to the centre square."""
    from PIL.Image import Resampling

    width, height = image.size
    shorter = min(width, height)
    if shorter != size:
        image = image.resize((int(size * width / shorter), int(size * height / shorter)), Resampling.BILINEAR)
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def _where(operation: Operation) -> str:
    return f"data.operations: {operation.kind}"


def _class_names(parts: Mapping[str, Part]) -> tuple[str, ...]:
    return next(iter(parts.values())).class_names


def _check_classes(part: Part, split: str, operation: Operation) -> None:
    empty = np.flatnonzero(np.bincount(part.labels, minlength=len(part.class_names)) == 0)
    if len(empty):
        remedy = "; to join classes, use 'merge'" if operation.kind == "relabel" else ""
        name = part.class_names[empty[0]]
        raise UserError(f"{_where(operation)}: no image of the class {name!r} is left in the split {split!r}{remedy}")


def _class_numbers(names: Iterable[str], class_names: tuple[str, ...], operation: Operation) -> list[int]:
    """The number of each named class.

    Raises:
        UserError: a class is unknown, or named twice.
    """
    numbers: list[int] = []
    for name in names:
        if name not in class_names:
            raise UserError(f"{_where(operation)}: there is no class {name!r}{suggest(name, class_names)}")
        number = class_names.index(name)
        if number in numbers:
            raise UserError(f"{_where(operation)}: the class {name!r} is given twice; name it once")
        numbers.append(number)
    return numbers


def _assign_labels(part: Part, new_label: NDArray[np.int64], class_names: tuple[str, ...]) -> Part:
    """The part with `new_label` (classes,) of each class; images of a class with `DROPPED` are left out."""
    labels = new_label[part.labels]
    rows = np.flatnonzero(labels != DROPPED)
    return replace(part.select(rows), labels=labels[rows], class_names=class_names)


def _keep_classes(parts: Mapping[str, Part], operation: KeepClasses) -> dict[str, Part]:
    class_names = _class_names(parts)
    new_label = np.full(len(class_names), DROPPED, np.int64)
    new_label[_class_numbers(operation.keep, class_names, operation)] = np.arange(len(operation.keep))
    return {split: _assign_labels(part, new_label, operation.keep) for split, part in parts.items()}


def _merge_classes(parts: Mapping[str, Part], operation: MergeClasses) -> dict[str, Part]:
    """Number the new classes by their first old class, because a recipe's digest ignores the order of the groups."""
    class_names = _class_names(parts)
    _class_numbers([name for group in operation.groups.values() for name in group], class_names, operation)
    members = {name: _class_numbers(group, class_names, operation) for name, group in operation.groups.items()}
    new_names = tuple(sorted(members, key=lambda name: min(members[name])))
    new_label = np.full(len(class_names), DROPPED, np.int64)
    for label, name in enumerate(new_names):
        new_label[members[name]] = label
    return {split: _assign_labels(part, new_label, new_names) for split, part in parts.items()}


def _relabel(parts: Mapping[str, Part], operation: Relabel) -> dict[str, Part]:
    class_names = _class_names(parts)
    old = _class_numbers(operation.mapping, class_names, operation)
    new = [_class_numbers([name], class_names, operation)[0] for name in operation.mapping.values()]
    new_label = np.arange(len(class_names))
    new_label[old] = new
    return {split: _assign_labels(part, new_label, class_names) for split, part in parts.items()}


def _draw_subset(parts: Mapping[str, Part], operation: Subset) -> dict[str, Part]:
    from sklearn.model_selection import train_test_split

    where = _where(operation)
    if operation.split not in parts:
        raise UserError(f"{where}: there is no split {operation.split!r}{suggest(operation.split, parts)}")
    part = parts[operation.split]
    count = len(part.labels)
    if operation.samples > count:
        raise UserError(f"{where}: {operation.samples} samples of {count} images in the split {operation.split!r}")
    rows = np.arange(count)
    if operation.samples == count and operation.rest:
        raise UserError(f"{where}: {operation.samples} samples leave no rest of the split {operation.split!r}")
    if operation.samples < count:
        _check_drawable(part, operation)
        try:
            # scikit-learn takes 32 bits.
            drawn, others = train_test_split(
                rows, train_size=operation.samples, stratify=part.labels, random_state=operation.seed % 2**32
            )
            rows = others if operation.rest else drawn
        except ValueError as error:
            raise UserError(f"{where}: {operation.samples} samples cannot be drawn by class: {error}") from error
    return {**parts, operation.split: part.select(np.sort(rows))}


def _check_drawable(part: Part, operation: Subset) -> None:
    """Check that the drawn images and the rest can each have one image of every class."""
    count, classes = len(part.labels), len(np.unique(part.labels))
    rest = count - operation.samples
    if min(operation.samples, rest) >= classes:
        return
    possible = [f"{classes} to {count - classes}"] if 2 * classes <= count else []
    if not operation.rest:
        possible.append(f"all {count}")
    few = f"the {rest} other images" if rest < classes else "they"
    remedy = f"give {' or '.join(possible)}" if possible else f"the split has only {count} images"
    raise UserError(
        f"{_where(operation)}: {operation.samples} samples cannot be drawn by class: {few} are fewer than the "
        f"{classes} classes; {remedy}"
    )


def _keep_listed(parts: Mapping[str, Part], operation: KeepListed) -> dict[str, Part]:
    """Keep only the listed images of one of the source's own splits.

    CIFAR-minus-Flickr (two-pathways-2021) is CIFAR-10 without the images found on Flickr: 52 172 of 60 000. The paper
    publishes no list, so the user provides one for `train` and one for `test`.
    """
    where = _where(operation)
    origins = {split: part for split, part in parts.items() if part.origin == operation.split}
    if not origins:
        known = sorted({part.origin for part in parts.values()})
        remedy = "; list before concatenating" if CONCATENATED in known else ""
        raise UserError(f"{where}: the source has no split {operation.split!r} (it has: {', '.join(known)}){remedy}")
    named = _indices_by_name(origins)
    listed: dict[int, int] = {}
    for line, entry in read_listed_entries(operation):
        index = _find_index(entry, origins, named, f"{where}: {operation.path}, line {line}")
        if index in listed:
            raise UserError(f"{where}: {operation.path}, line {line}: {entry!r} is on line {listed[index]} already")
        listed[index] = line
    if not listed:
        raise UserError(f"{where}: {operation.path} lists no image")
    wanted = np.fromiter(listed, np.int64)
    chosen = {split: part.select(np.flatnonzero(np.isin(part.source_index, wanted))) for split, part in origins.items()}
    return {**parts, **chosen}


def read_listed_entries(operation: KeepListed) -> Iterator[tuple[int, str]]:
    """Each entry of the list with its line number, from 1; empty lines and comments are skipped.

    Raises:
        UserError: the list does not exist, has another SHA-256 than the recipe, or is not text.
    """
    where, path = _where(operation), Path(operation.path)
    if not path.is_file():
        raise UserError(f"{where}: {path} does not exist")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if operation.sha256 is None:
        raise UserError(f"{where}: {path} has the SHA-256 {found}; give it in the recipe")
    if found != operation.sha256:
        raise UserError(f"{where}: {path} has the SHA-256 {found}, not {operation.sha256}; was it edited?")
    try:
        # "utf-8-sig" drops the mark that Windows writes at the start of text files.
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: {path} is not a text file in UTF-8: {error}") from error
    for number, line in enumerate(lines, start=1):
        entry = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        if entry:
            yield number, entry


def _find_index(entry: str, origins: Mapping[str, Part], named: Mapping[str, list[int]], where: str) -> int:
    """The source index of an entry of the list: an index, or a file name."""
    part = next(iter(origins.values()))
    # No index has more digits, and Python refuses to parse numbers of thousands of digits.
    if re.fullmatch(r"-?\d{1,18}", entry):
        if not 0 <= int(entry) < part.origin_size:
            raise UserError(f"{where}: index {entry} is out of range; {part.origin!r} has {part.origin_size} images")
        return int(entry)
    shown = repr(entry if len(entry) <= LONGEST_SHOWN else f"{entry[:LONGEST_SHOWN]}...")
    if not named:
        raise UserError(f"{where}: {shown} is no index, and the images of this source have no file names")
    found = named.get(entry, [])
    if not found:
        whole = sum(len(one.labels) for one in origins.values()) == part.origin_size
        remedy = "" if whole else "; list before other operations drop images"
        raise UserError(f"{where}: no image of {part.origin!r} has the file name {shown}{remedy}")
    if len(found) > 1:
        raise UserError(f"{where}: {len(found)} images have the file name {shown}; give their indices")
    return found[0]


def _indices_by_name(origins: Mapping[str, Part]) -> dict[str, list[int]]:
    indices: dict[str, list[int]] = {}
    for part in origins.values():
        for name, index in zip(part.names or (), part.source_index.tolist(), strict=part.names is not None):
            indices.setdefault(name, []).append(index)
    return indices


def _keep_named(part: Part, operation: KeepNamed) -> Part:
    """Keep images whose name matches: the whole name for a pattern with a slash, else the part after the last slash."""
    if part.names is None:
        raise UserError(f"{_where(operation)}: the images of this source have no file names")
    names = part.names if "/" in operation.pattern else [name.rpartition("/")[2] for name in part.names]
    rows = np.flatnonzero([fnmatchcase(name, operation.pattern) for name in names])
    if not len(rows):
        raise UserError(f"{_where(operation)}: no file name matches {operation.pattern!r}, such as {part.names[0]!r}")
    return part.select(rows)


def _concatenate(first: Mapping[str, Part], second: Mapping[str, Part]) -> dict[str, Part]:
    where = "data.operations: concatenate"
    one, other = next(iter(first.values())), next(iter(second.values()))
    if one.class_names != other.class_names:
        raise UserError(f"{where}: the classes differ: {_describe_difference(one.class_names, other.class_names)}")
    if one.images.shape[1:] != other.images.shape[1:]:
        raise UserError(f"{where}: the image shapes differ: {one.images.shape[1:]} and {other.images.shape[1:]}")
    if one.images.dtype != other.images.dtype:
        raise UserError(f"{where}: the image types differ: {one.images.dtype} and {other.images.dtype}")
    splits = dict.fromkeys([*first, *second])
    return {
        split: _join(first[split], second[split]) if split in first and split in second else {**second, **first}[split]
        for split in splits
    }


def _describe_difference(first: tuple[str, ...], second: tuple[str, ...]) -> str:
    for number, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return f"class {number} is {one!r} and {other!r}"
    return f"{len(first)} and {len(second)} of them"


def _join(first: Part, second: Part) -> Part:
    """One part after the other; file names are kept if both parts have them.

    The second part's source indices continue after those of the first, so that each index still means one image.
    """
    names = None if first.names is None or second.names is None else first.names + second.names
    return Part(
        images=JoinedImages((first.images, second.images)),
        labels=np.concatenate([first.labels, second.labels]),
        class_names=first.class_names,
        names=names,
        source_index=np.concatenate([first.source_index, first.origin_size + second.source_index]),
        origin=CONCATENATED,
        origin_size=first.origin_size + second.origin_size,
    )
