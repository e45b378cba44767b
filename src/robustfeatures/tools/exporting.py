"""Data sets in formats that other programs read: image folders, `.npz` files, torch tensors."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.errors import UserError, suggest
from robustfeatures.pipeline.store.datasets import list_splits, read_dataset
from robustfeatures.tools.huggingface import encode_png, round_to_bytes, write_huggingface
from robustfeatures.tools.opening import payload_file

if TYPE_CHECKING:
    from torch import Tensor

Format = Literal["folder", "npz", "constructed", "huggingface"]
SPLITS = ("train", "validation", "test")
# The names in the releases of not-bugs-2019, whatever the data set.
IMAGES_FILE, LABELS_FILE = "CIFAR_ims", "CIFAR_lab"
# The longest file name, in bytes, on common file systems.
LONGEST_FILE_NAME = 255


def export(
    reference_or_path: str | Path,
    out: Path,
    form: Format,
    *,
    split: str | None = None,
    store: str | Path | None = None,
) -> list[str]:
    """Write one split or all splits of a data set at `out`; returns lines on what was written and what was lost.

    folder: `out/<split>/<class>/<source index>.png`, for the source `folder`. float32 is rounded to 8 bits.
    npz: the file `out`, for the source `npz`, with the arrays `images`, `labels`, each column of provenance, and
        `class_names`. With all splits the names of arrays, except `class_names`, begin with `<split>_`.
    constructed: `CIFAR_ims` and `CIFAR_lab`, the published names, in `out`, or with all splits in `out/<split>`. Each
        is a list of tensors, images float32 in [0, 1]. The source `constructed` reads one such folder as one pool.
    huggingface: parquet files and a dataset card, for `datasets.load_dataset(out)`. float32 is rounded to 8 bits.

    Raises:
        UserError: there is no such data set or split, it is damaged, `out` exists and is not an empty folder, or a
            class name cannot be the name of a folder.
        OSError: the system's error, always with the name `out`.
    """
    path = payload_file(Path(reference_or_path), "data.zarr", store, verified=True)
    found = [name for name in SPLITS if name in list_splits(path)]
    if not found:
        raise UserError(f"{path}: has none of the splits {', '.join(SPLITS)}")
    if split is not None and split not in found:
        raise UserError(f"--split: {reference_or_path} has no split {split!r}{suggest(split, found)}")
    chosen = found if split is None else [split]
    datasets = {name: _read_split(path, name) for name in chosen}
    if out.exists() and (form == "npz" or not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: exists already; give another name")
    with _write_beside(out) as fresh:
        match form:
            case "folder":
                notes = _write_folder(fresh, datasets)
            case "npz":
                notes = _write_npz(fresh, datasets, pool=split is not None)
            case "constructed":
                notes = _write_constructed(fresh, datasets, out, pool=split is not None)
            case "huggingface":
                notes = write_huggingface(fresh, datasets, Path(reference_or_path), store)
    counts = ", ".join(f"{len(dataset)} images of {name}" for name, dataset in datasets.items())
    return [f"{out}: {counts}", *notes]


def _read_split(path: Path, split: str) -> ImageDataset:
    dataset = read_dataset(path, split, in_memory=False)
    if "source_index" not in dataset.provenance:
        raise UserError(f"{path / split / 'source_index'}: there is no such array; every data set has one")
    return dataset


@contextmanager
def _write_beside(out: Path) -> Iterator[Path]:
    """A hidden path that becomes `out` after everything is written, or is removed after an error."""
    place = out.resolve()
    # The user's empty folder itself is kept, because a shell may be in it or a disk mounted there.
    given = place.is_dir()
    fresh = (place if given else place.parent) / f".{place.name}.{secrets.token_hex(4)}"
    try:
        fresh.parent.mkdir(parents=True, exist_ok=True)
        yield fresh
        if given:
            for path in sorted(fresh.iterdir()):
                path.replace(place / path.name)
        else:
            fresh.replace(place)
    except OSError as error:
        if error.errno is not None:
            error.filename = str(error.filename or out).replace(str(fresh), str(out))
        raise
    finally:
        if fresh.is_dir():
            shutil.rmtree(fresh)
        # If `out` lies below a file, there is nothing to remove.
        with suppress(NotADirectoryError):
            fresh.unlink(missing_ok=True)


def _write_folder(folder: Path, datasets: Mapping[str, ImageDataset]) -> list[str]:
    class_names = next(iter(datasets.values())).class_names
    _check_folder_names(class_names)
    notes = ["a folder keeps no order and of the provenance only source_index; its images are sorted by class"]
    if list(class_names) != sorted(class_names):
        notes.append("a folder keeps no order of classes; they are numbered by their sorted names when it is read")
    change = 0.0
    for split, dataset in datasets.items():
        notes += _warn_of_empty_class("folder", split, class_names, dataset.labels)
        change = max(change, _write_split(folder / split, dataset))
    if any(dataset.images.dtype != np.uint8 for dataset in datasets.values()):
        notes.append(f"images were rounded to 8 bits; the largest change of a pixel is {change:.6f} of 1")
    return notes


def _warn_of_empty_class(source: str, split: str, class_names: Sequence[str], labels: NDArray[np.int64]) -> list[str]:
    """A line on the first class of a split without images, which the source would refuse; none if there is no such."""
    present = set(labels.tolist())
    for number, name in enumerate(class_names):
        if number not in present:
            return [f"{split}: the class {name!r} has no image; the source {source!r} refuses that"]
    return []


def _check_folder_names(class_names: tuple[str, ...]) -> None:
    for name in class_names:
        unusable = not name or name.startswith(".") or "/" in name or "\\" in name or not name.isprintable()
        if unusable or len(name.encode()) > LONGEST_FILE_NAME:
            raise UserError(f"class {name!r}: cannot be the name of a folder; export as npz, or rename with 'merge'")
    # Some file systems ignore case, or the difference between two spellings of an accented letter.
    folded = [unicodedata.normalize("NFC", name.casefold()) for name in class_names]
    for number, name in enumerate(folded):
        if name in folded[:number]:
            raise UserError(f"class {class_names[number]!r}: another class folder has this name; export as npz")


def _write_split(folder: Path, dataset: ImageDataset) -> float:
    """Write the images of one split; returns the largest change of a pixel by rounding."""
    for name in dataset.class_names:
        (folder / name).mkdir(parents=True)
    names = _file_names(dataset)
    change = 0.0
    with ThreadPoolExecutor() as pool:
        for rows in dataset.blocks():
            images = dataset.images[rows]
            images, rounding = round_to_bytes(images)
            change = max(change, rounding)
            paths = [folder / dataset.class_names[dataset.labels[row]] / names[row] for row in rows]
            for _ in pool.map(_write_png, paths, images):
                pass
    return change


def _file_names(dataset: ImageDataset) -> list[str]:
    """The source index of each image, or its row in the split if images of several sources share an index."""
    index = dataset.provenance["source_index"]
    if len(np.unique(index)) < len(index):
        index = np.arange(len(dataset))
    width = len(str(index.max(initial=0)))
    return [f"{number:0{width}d}.png" for number in index.tolist()]


def _write_png(path: Path, image: NDArray[np.uint8]) -> None:
    path.write_bytes(encode_png(image))


def _write_npz(path: Path, datasets: Mapping[str, ImageDataset], *, pool: bool) -> list[str]:
    with zipfile.ZipFile(path, "x") as archive:
        for split, dataset in datasets.items():
            prefix = "" if pool else f"{split}_"
            blocks = (dataset.images[rows] for rows in dataset.blocks())
            _write_array(archive, f"{prefix}images", dataset.images.shape, dataset.images.dtype, blocks)
            for name, values in {"labels": dataset.labels, **dataset.provenance}.items():
                _write_array(archive, f"{prefix}{name}", values.shape, values.dtype, iter([values]))
        class_names = np.array(next(iter(datasets.values())).class_names)
        _write_array(archive, "class_names", class_names.shape, class_names.dtype, iter([class_names]))
    return [
        line
        for split, dataset in datasets.items()
        for line in _warn_of_empty_class("npz", split, dataset.class_names, dataset.labels)
    ]


def _write_array(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], blocks: Iterator[NDArray[Any]]
) -> None:
    """Write one array in numpy's format, block by block; np.savez would need all of it in memory."""
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_2_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block).tobytes())


def _write_constructed(folder: Path, datasets: Mapping[str, ImageDataset], out: Path, *, pool: bool) -> list[str]:
    for split, dataset in datasets.items():
        target = folder if pool else folder / split
        target.mkdir(parents=True)
        _write_tensors(target, dataset)
    places = [str(out if pool else out / split) for split in datasets]
    notes = [
        "this layout keeps no class names and no provenance",
        f"the source 'constructed' reads one folder, path: {' or '.join(places)}, as one pool, which needs a share "
        "'test' to be drawn from it",
    ]
    if any(dataset.images.dtype == np.uint8 for dataset in datasets.values()):
        notes.append("images became float32, the grey levels divided by 255")
    for split, dataset in datasets.items():
        # The source counts the classes by the largest label.
        counted = int(dataset.labels.max()) + 1
        notes += _warn_of_empty_class("constructed", split, dataset.class_names[:counted], dataset.labels)
        if counted < dataset.num_classes:
            notes.append(f"{split}: the source 'constructed' counts {counted} of the {dataset.num_classes} classes")
    return notes


def _write_tensors(folder: Path, dataset: ImageDataset) -> None:
    import torch

    # torch.save needs whole tensors. Tensors over a mapped file need not all be in memory.
    buffer = folder / ".buffer"
    with buffer.open("xb") as file:
        # On a full disk, writing to a mapped file whose bytes are not allocated would kill the process.
        os.posix_fallocate(file.fileno(), 0, int(np.prod(dataset.images.shape)) * np.dtype(np.float32).itemsize)
    images = np.memmap(buffer, np.float32, "r+", shape=dataset.images.shape)
    blocks = list(dataset.blocks())
    for rows in blocks:
        images[rows[0] : rows[-1] + 1] = dataset.float_images(rows)
    _save_tensors([torch.from_numpy(images[rows[0] : rows[-1] + 1]) for rows in blocks], folder / IMAGES_FILE)
    _save_tensors([torch.from_numpy(dataset.labels[rows]) for rows in blocks], folder / LABELS_FILE)
    del images
    buffer.unlink()


def _save_tensors(tensors: list[Tensor], path: Path) -> None:
    import torch

    try:
        with path.open("xb") as file:
            torch.save(tensors, file)
    except RuntimeError as error:
        # torch's message names a line of its own code. The system's error is its context.
        if isinstance(error.__context__, OSError | UserError):
            raise error.__context__ from None
        raise OSError(errno.EIO, f"torch could not write it: {' '.join(str(error).split())}", str(path)) from error
