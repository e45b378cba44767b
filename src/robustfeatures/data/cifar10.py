"""CIFAR-10 (Krizhevsky, 2009): 60 000 photographs of ten classes, 32x32 pixels, from its Python version.

Its files are pickles. torchvision would run any code in them, so this module uses only torchvision's addresses and
checksums. Its own unpickler accepts only arrays of numbers and plain containers.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustfeatures.data.download import Download, check_counts, hold_lock
from robustfeatures.data.raw import RawData
from robustfeatures.engine.vision import import_torchvision
from robustfeatures.errors import UserError
from robustfeatures.files import write_atomically

if TYPE_CHECKING:
    from robustfeatures.data.settings import Data

# The objects that the published pickles name, each with its module in the installed numpy.
PICKLED_OBJECTS = {
    ("numpy.core.multiarray", "_reconstruct"): "numpy._core.multiarray",
    ("numpy", "ndarray"): "numpy",
    ("numpy", "dtype"): "numpy",
}


def downloads(parameters: Data, raw: Path) -> tuple[Download, ...]:
    """The archive, with torchvision's address, MD5 and path."""
    kind = import_torchvision().datasets.CIFAR10
    return (Download((kind.url,), _folder(raw) / kind.filename, md5=kind.tgz_md5),)


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """The published splits: train (50 000, 3, 32, 32) and test (10 000, 3, 32, 32), uint8, with their file names.

    The archive is downloaded only if an extracted file is missing or damaged.

    Raises:
        UserError: the archive cannot be fetched, or does not hold the published files.
    """
    kind, folder = import_torchvision().datasets.CIFAR10, _folder(raw)
    contents = _read_extracted(kind, folder)
    if contents is None:
        (archive,) = downloads(parameters, raw)
        archive.fetch()
        contents = _extract(kind, folder, archive.path)
    try:
        files = {name: _Batch(io.BytesIO(content), encoding="latin1").load() for name, content in contents.items()}
    except pickle.UnpicklingError as error:
        raise UserError(f"{folder}: {error}") from error
    class_names = tuple(files[kind.meta["filename"]][kind.meta["key"]])
    batches = {"train": kind.train_list, "test": kind.test_list}
    splits = {
        split: _join_batches([files[name] for name, _ in listed], class_names) for split, listed in batches.items()
    }
    check_counts(splits, parameters.source)
    return splits


class _Batch(pickle.Unpickler):
    """Unpickles arrays and plain containers, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in PICKLED_OBJECTS:
            raise pickle.UnpicklingError(f"a published file holds no {module}.{name}; this one does")
        return super().find_class(PICKLED_OBJECTS[module, name], name)


def _folder(raw: Path) -> Path:
    return raw / "cifar10"


def _checksums(kind: Any) -> dict[str, str]:
    """The MD5 of each published file by its name."""
    return {**dict([*kind.train_list, *kind.test_list]), kind.meta["filename"]: kind.meta["md5"]}


def _read_extracted(kind: Any, folder: Path) -> dict[str, bytes] | None:
    """The contents of the extracted files by name; None if one is missing or damaged."""
    contents: dict[str, bytes] = {}
    for name, md5 in _checksums(kind).items():
        path = folder / kind.base_folder / name
        contents[name] = path.read_bytes() if path.is_file() else b""
        if hashlib.md5(contents[name], usedforsecurity=False).hexdigest() != md5:
            return None
    return contents


def _extract(kind: Any, folder: Path, archive: Path) -> dict[str, bytes]:
    with hold_lock(folder):
        contents = _read_extracted(kind, folder)
        if contents is not None:
            return contents
        try:
            with tarfile.open(archive) as members:
                for name in _checksums(kind):
                    # Each member is read by name and written to our own path, so the archive cannot choose the path.
                    member = members.extractfile(f"{kind.base_folder}/{name}")
                    write_atomically(folder / kind.base_folder / name, member.read() if member else b"")
        except (tarfile.TarError, KeyError, EOFError, zlib.error) as error:
            raise UserError(f"{folder}: the archive does not hold the published files: {error}") from error
        contents = _read_extracted(kind, folder)
        if contents is None:
            raise UserError(f"{folder}: the archive does not hold the published files: a checksum differs")
        return contents


def _join_batches(batches: list[Mapping[str, Any]], class_names: tuple[str, ...]) -> RawData:
    return RawData(
        np.concatenate([batch["data"] for batch in batches]).reshape(-1, 3, 32, 32),
        np.concatenate([batch["labels"] for batch in batches]).astype(np.int64),
        class_names,
        tuple(name for batch in batches for name in batch["filenames"]),
    )
