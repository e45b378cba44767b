"""Files of torch tensors, images and labels, as published with not-bugs-2019.

A folder holds two files, `<name>_ims` and `<name>_lab` (CIFAR_ims and CIFAR_lab in the published releases). Each holds
one tensor, or a list of tensors, which are concatenated.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robustfeatures.data.npz import check_range
from robustfeatures.data.operations import JoinedImages
from robustfeatures.data.own_files import check_digest, combine_digests, require_path
from robustfeatures.data.raw import RawData, count_classes
from robustfeatures.data.settings import POOL
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    import torch

    from robustfeatures.data.settings import Data


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """The pool "all"; float32 in [0, 1] stays float32, and the class names are the class numbers.

    If torch can map the files into memory, images are read only on access.

    Raises:
        UserError: the folder has no pair of files, or several; its digest is another; or a tensor has a wrong shape,
            type or range.
    """
    images_file, labels_file = find_files(require_path(parameters))
    check_digest(parameters, compute_digest(parameters))
    images, labels = _load_tensors(images_file), _load_tensors(labels_file)
    where = f"data.path: {images_file.parent}"
    for tensor in images:
        if tensor.ndim != 4 or tensor.shape[1:] != images[0].shape[1:] or tensor.dtype != images[0].dtype:
            raise UserError(
                f"{where}: images: a tensor of shape {tensor.shape} and type {tensor.dtype} after one of shape "
                f"{images[0].shape} and type {images[0].dtype}; all must be (N, C, height, width) of one kind"
            )
        check_range(tensor, where)
    for tensor in labels:
        if tensor.dtype.kind not in "iu" or tensor.ndim != 1:
            raise UserError(f"{where}: labels: shape {tensor.shape} and type {tensor.dtype}, not integers (N,)")
    numbers = np.concatenate(labels)
    joined = JoinedImages(tuple(images))
    class_names = tuple(str(number) for number in range(count_classes(joined, numbers, where)))
    pool = RawData(joined, numbers.astype(np.int64), class_names)
    pool.check(where)
    return {POOL: pool}


def compute_digest(parameters: Data) -> str:
    """The SHA-256 over the sorted lines `<file name> <SHA-256 of the file>` of the two files."""
    digests: dict[str, str] = {}
    for path in find_files(require_path(parameters)):
        with path.open("rb") as file:
            digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return combine_digests(digests)


def find_files(folder: Path) -> tuple[Path, Path]:
    """The file of the images and the file of the labels.

    Raises:
        UserError: the folder has no pair of files, or several.
    """
    pairs = [
        (path, path.with_name(path.name.removesuffix("_ims") + "_lab"))
        for path in sorted(folder.glob("*_ims"))
        if path.with_name(path.name.removesuffix("_ims") + "_lab").is_file()
    ]
    if len(pairs) != 1:
        raise UserError(f"data.path: {folder} has {len(pairs)} pairs of files <name>_ims and <name>_lab, not one")
    return pairs[0]


def _load_tensors(path: Path) -> list[NDArray[Any]]:
    """The tensors of a file as arrays, without a copy."""
    import torch

    try:
        # torch can map only the newer of its two formats, a zip archive.
        loaded = torch.load(path, weights_only=True, map_location="cpu", mmap=zipfile.is_zipfile(path))
    except MemoryError:
        raise
    except Exception as error:  # torch raises many kinds for damaged or forbidden content
        raise UserError(f"data.path: {path} is not a readable torch file of tensors: {_first_line(error)}") from error
    tensors = list(loaded) if isinstance(loaded, list | tuple) else [loaded]
    if not tensors or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise UserError(f"data.path: {path} holds no tensor or list of tensors")
    return [_to_array(tensor, number, path) for number, tensor in enumerate(tensors)]


def _to_array(tensor: torch.Tensor, number: int, path: Path) -> NDArray[Any]:
    try:
        return tensor.detach().numpy()
    except (TypeError, RuntimeError) as error:
        raise UserError(
            f"data.path: {path} holds {tensor.layout} tensors of type {tensor.dtype}; save float32 or integers that "
            f"numpy can take, dense and with their values (tensor {number}: {_first_line(error)})"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
