"""The data sources by name; this module reads no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from robustfeatures.data.settings import POOL, Data
from robustfeatures.engine.registry import Entry, find_entry, index_by_name
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.data.raw import RawData


@dataclass(frozen=True)
class Size:
    """The number and the shape of a source's images.

    images: the number of images by split ("train", "validation", "test"), or of the pool under "all".
    shape: (C, H, W) of each image.
    names: the file names by split, if the source has file names.
    """

    images: Mapping[str, int]
    shape: tuple[int, int, int]
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Loader(Protocol):
    """Loads a source: its splits by name, or its pool under "all"."""

    def __call__(self, parameters: Data, raw: Path) -> dict[str, RawData]:
        """Load the source; `raw` is the folder of downloads.

        Raises:
            UserError: the source cannot be read.
        """
        ...


class Counter(Protocol):
    """Counts the images in the user's own files, without torch and without reading the images."""

    def __call__(self, path: Path) -> Size:
        """Count the images at `path`. After any error here, the loader tells the user what is wrong."""
        ...


@dataclass(frozen=True, kw_only=True)
class SourceEntry(Entry):
    """One data source.

    loader: `module:function`, a `Loader`. Its module also has `downloads(parameters, raw)` if it downloads, and
        `compute_digest(parameters)` if the user provides the files.
    classes: for a published set, the number of its classes, which are taken to be equally large.
    size: the number and shape of its images; for the user's own files `module:function`, a `Counter`.
    is_pool: whether the user's own files are always one pool, which planning cannot see from a counter.
    user_folder: for a published set that the user provides, its folder below the downloads, used where no `path`
        is given.
    has_many_sizes: whether its images have many sizes, so that a study must give `size`.
    licence: under which terms others may have its images, for the card of an exported set.
    """

    loader: str
    size: Size | str
    classes: int | None = None
    is_pool: bool = False
    user_folder: str | None = None
    has_many_sizes: bool = False
    licence: str = "not known to this package; state that of your own files"

    @property
    def module(self) -> str:
        """The module of the loader."""
        return self.loader.partition(":")[0]

    @property
    def has_own_files(self) -> bool:
        """Whether the files are the user's own, so that a study gives their `path` and `sha256`."""
        return isinstance(self.size, str)

    @property
    def has_path(self) -> bool:
        """Whether a study may give the `path` of the files."""
        return self.has_own_files or self.user_folder is not None

    @property
    def splits(self) -> tuple[str, ...] | None:
        """The source's own splits, empty for a pool; None if only the files show them."""
        if isinstance(self.size, str):
            return () if self.is_pool else None
        return tuple(split for split in self.size.images if split != POOL)

    @property
    def published_images(self) -> Mapping[str, int]:
        """The number of images in each split of a published set."""
        assert isinstance(self.size, Size)
        return self.size.images

    def check_size(self, size: int | None, where: str = "data.size") -> None:
        """Check the `size` of a study; `where` is its field.

        Raises:
            UserError: the source needs a size, and none is given.
        """
        if self.has_many_sizes and size is None:
            raise UserError(f"{where}: the source {self.name!r} needs a size, such as 224; its images have many")


_TINY_IMAGES = "its images come from Tiny Images, which its authors have withdrawn, and each has its own rights"
_CIFAR10 = f"no licence was published with CIFAR-10; {_TINY_IMAGES}"
_CIFAR10_1 = f"the repository of CIFAR-10.1 is under the MIT licence; {_TINY_IMAGES}"
_IMAGENET = "the terms of access of ImageNet: research and education that are not commercial, no redistribution"
_CINIC10 = f"the repository of CINIC-10 is under the MIT licence; for the images from ImageNet, {_IMAGENET}"

SOURCES = index_by_name(
    SourceEntry(
        name="cifar10",
        licence=_CIFAR10,
        loader="robustfeatures.data.cifar10:load",
        size=Size({"train": 50_000, "test": 10_000}, (3, 32, 32)),
        classes=10,
    ),
    SourceEntry(
        name="cifar10.1-v4",
        licence=_CIFAR10_1,
        loader="robustfeatures.data.cifar10_1:load",
        size=Size({"test": 2_021}, (3, 32, 32)),
        classes=10,
    ),
    SourceEntry(
        name="cifar10.1-v6",
        licence=_CIFAR10_1,
        loader="robustfeatures.data.cifar10_1:load",
        size=Size({"test": 2_000}, (3, 32, 32)),
        classes=10,
    ),
    SourceEntry(
        name="cinic10",
        licence=_CINIC10,
        loader="robustfeatures.data.cinic10:load",
        size=Size({"train": 90_000, "validation": 90_000, "test": 90_000}, (3, 32, 32)),
        classes=10,
        user_folder="cinic10",
    ),
    SourceEntry(
        name="cinic10-cifar",
        licence=_CINIC10,
        loader="robustfeatures.data.cinic10:load",
        size=Size({"train": 20_000, "validation": 20_000, "test": 20_000}, (3, 32, 32)),
        classes=10,
        user_folder="cinic10",
    ),
    SourceEntry(
        name="cinic10-imagenet",
        licence=_CINIC10,
        loader="robustfeatures.data.cinic10:load",
        size=Size({"train": 70_000, "validation": 70_000, "test": 70_000}, (3, 32, 32)),
        classes=10,
        user_folder="cinic10",
    ),
    SourceEntry(
        name="constructed",
        loader="robustfeatures.data.constructed:load",
        size="robustfeatures.data.counting:count_constructed",
        is_pool=True,
    ),
    SourceEntry(
        name="digits",
        licence="CC BY 4.0 (Optical Recognition of Handwritten Digits, UCI Machine Learning Repository)",
        loader="robustfeatures.data.digits:load",
        size=Size({POOL: 1_797}, (1, 8, 8)),
        classes=10,
    ),
    SourceEntry(
        name="folder", loader="robustfeatures.data.folder:load", size="robustfeatures.data.counting:count_folder"
    ),
    SourceEntry(
        name="mnist",
        licence="CC BY-SA 3.0 (Yann LeCun and Corinna Cortes)",
        loader="robustfeatures.data.mnist:load",
        size=Size({"train": 60_000, "test": 10_000}, (1, 28, 28)),
        classes=10,
    ),
    SourceEntry(name="npz", loader="robustfeatures.data.npz:load", size="robustfeatures.data.counting:count_npz"),
    SourceEntry(
        name="restricted-imagenet",
        licence=_IMAGENET,
        loader="robustfeatures.data.restricted_imagenet:load",
        # 203 of ImageNet's classes, each with at most 1300 training images and 50 validation images.
        size=Size({"train": 263_900, "test": 10_150}, (3, 224, 224)),
        classes=9,
        user_folder="imagenet",
        has_many_sizes=True,
    ),
    SourceEntry(
        name="svhn",
        licence="use that is not commercial, says the page of SVHN",
        loader="robustfeatures.data.svhn:load",
        size=Size({"train": 73_257, "test": 26_032}, (3, 32, 32)),
        classes=10,
    ),
)


def find_source(source: str, field: str = "data.source") -> SourceEntry:
    """The entry of the source with this name; `field` is the field of the study that names it.

    Raises:
        UserError: no source has that name.
    """
    return find_entry(SOURCES, source, field)
