"""The number and the shape of the images in the user's own files, from file names and headers alone."""

from __future__ import annotations

import pickle
import zipfile
from collections import OrderedDict
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from robustfeatures.data.registry import Size
from robustfeatures.data.settings import POOL, Data

if TYPE_CHECKING:
    from collections.abc import Sequence


def count_folder(path: Path) -> Size:
    """The number of image files in each split of a folder, and the shape of the first image that can be opened."""
    from robustfeatures.data.folder import GREY, inspect_headers
    from robustfeatures.data.listing import list_images

    listings, _ = list_images(Data(source="folder", path=str(path)))
    names = {split: listing.names(range(len(listing.files))) for split, listing in listings.items()}
    for file in (file for listing in listings.values() for file in listing.files):
        facts = inspect_headers(path, [file])[file]
        if facts.problem is None:
            shape = (1 if facts.mode in GREY else 3, facts.height, facts.width)
            return Size({split: len(files) for split, files in names.items()}, shape, names)
    raise ValueError(f"{path} holds no image that can be opened")


def count_npz(path: Path) -> Size:
    """The length of each array of labels and the shape of the first array of images, from the headers."""
    from robustfeatures.data.npz import find_prefixes

    with zipfile.ZipFile(path) as file:
        arrays = [name.removesuffix(".npy") for name in file.namelist()]
        prefixes = find_prefixes(arrays, path)
        counts = {split: _read_npy_shape(file, f"{prefix}labels")[0] for split, prefix in prefixes.items()}
        _, channels, height, width = _read_npy_shape(file, f"{next(iter(prefixes.values()))}images")
    return Size(counts, (channels, height, width))


def _read_npy_shape(file: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    from numpy.lib import format as npy

    with file.open(f"{name}.npy") as member:
        read = npy.read_array_header_1_0 if npy.read_magic(member) == (1, 0) else npy.read_array_header_2_0
        shape: tuple[int, ...] = read(member)[0]
        return shape


def count_constructed(path: Path) -> Size:
    """The total length of the labels and the shape of the first tensor of images, from the pickles, without torch."""
    from robustfeatures.data.constructed import find_files

    images, labels = (_read_tensor_shapes(file) for file in find_files(path))
    _, channels, height, width = images[0]
    return Size({POOL: sum(prod(shape) for shape in labels)}, (channels, height, width))


def _read_tensor_shapes(path: Path) -> list[tuple[int, ...]]:
    """The shapes of the tensors in a file that `torch.save` wrote, in either of its formats."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            name = next(name for name in file.namelist() if name.endswith("/data.pkl"))
            with file.open(name) as member:
                loaded = _ShapeUnpickler(member).load()
    else:
        with path.open("rb") as legacy:
            # Three pickles precede the tensors: a magic number, the version of the format, facts about the machine.
            *_, loaded = (_ShapeUnpickler(legacy).load() for _ in range(4))
    # A single tensor is loaded as one shape.
    return [loaded] if isinstance(loaded[0], int) else list(loaded)


class _ShapeUnpickler(pickle.Unpickler):
    """Reads pickled tensors as their shapes, and refuses all other objects, so that a pickle can run no code."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, encoding="latin1")

    def find_class(self, module: str, name: str) -> Any:
        """Accept only the names that torch writes for a tensor."""
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _return_shape
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name.endswith("Storage"):
            return name
        raise pickle.UnpicklingError(f"{module}.{name} is no tensor")

    def persistent_load(self, identifier: Any) -> None:
        """Skip the values of a tensor."""


def _return_shape(storage: None, offset: int, shape: Sequence[int], *others: Any) -> tuple[int, ...]:
    return tuple(shape)
