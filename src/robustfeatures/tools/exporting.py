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
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.errors import UserError, suggest
from robustfeatures.pipeline.store.datasets import read_dataset, splits_of
from robustfeatures.tools.opening import payload_file

if TYPE_CHECKING:
    from torch import Tensor

Format = Literal["folder", "npz", "constructed"]
SPLITS = ("train", "validation", "test")
# Bytes that common file systems allow.
LONGEST_FILE_NAME = 255


def export(
    reference_or_path: str | Path,
    out: Path,
    form: Format,
    *,
    split: str | None = None,
    store: str | Path | None = None,
) -> list[str]:
    """Write all splits of a data set, or one, at `out`; returns what was written and what the format loses.

    folder: `out/<split>/<class>/<source index>.png`, read again by the source `folder`. float32 is rounded to 8 bits.
    npz: the file `out`, read again by the source `npz`: `images`, `labels` and a column for each kind of provenance,
        which begin with `<split>_` where all splits are written, and `class_names`.
    constructed: `<name>_ims` and `<name>_lab` in `out`, or in `out/<split>` where all splits are written, with the name
        of `out`. Each is a list of tensors, images float32 in [0, 1]; read again by the source `constructed`, which
        takes one such folder for one pool.

    Raises:
        UserError: there is no such data set or split, it is damaged, `out` exists and is not an empty folder, or a
            class name cannot be the name of a folder.
        OSError: as the system says; it names `out`, also where the disk is full, which the system does not.
    """
    path = payload_file(Path(reference_or_path), "data.zarr", store, verified=True)
    found = [name for name in SPLITS if name in splits_of(path)]
    if not found:
        raise UserError(f"{path}: has none of the splits {', '.join(SPLITS)}")
    if split is not None and split not in found:
        raise UserError(f"--split: {reference_or_path} has no split {split!r}{suggest(split, found)}")
    chosen = found if split is None else [split]
    datasets = {name: _dataset(path, name) for name in chosen}
    if out.exists() and (form == "npz" or not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: exists already; give another name")
    with _made(out) as fresh:
        match form:
            case "folder":
                notes = _write_folder(fresh, datasets)
            case "npz":
                notes = _write_npz(fresh, datasets, pool=split is not None)
            case "constructed":
                notes = _write_constructed(fresh, datasets, out, pool=split is not None)
    counts = ", ".join(f"{len(dataset)} images of {name}" for name, dataset in datasets.items())
    return [f"{out}: {counts}", *notes]


def _dataset(path: Path, split: str) -> ImageDataset:
    dataset = read_dataset(path, split, in_memory=False)
    if "source_index" not in dataset.provenance:
        raise UserError(f"{path / split / 'source_index'}: there is no such array; every data set has one")
    return dataset


@contextmanager
def _made(out: Path) -> Iterator[Path]:
    """A hidden place that becomes `out` when all is written, and of which nothing is left when something fails."""
    place = out.resolve()
    # An empty folder of the user's stays the same one: a shell may be in it, or a disk be mounted there.
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
        fresh.unlink(missing_ok=True)


def _write_folder(folder: Path, datasets: Mapping[str, ImageDataset]) -> list[str]:
    class_names = next(iter(datasets.values())).class_names
    _check_folder_names(class_names)
    notes = ["a folder keeps no order and of the provenance only source_index; its images are sorted by class"]
    if list(class_names) != sorted(class_names):
        notes.append("a folder keeps no order of classes; they are numbered by their sorted names when it is read")
    change = 0.0
    for split, dataset in datasets.items():
        notes += _refusal("folder", split, class_names, dataset.labels)
        change = max(change, _write_split(folder / split, dataset))
    if any(dataset.images.dtype != np.uint8 for dataset in datasets.values()):
        notes.append(f"images were rounded to 8 bits; the largest change of a pixel is {change:.6f} of 1")
    return notes


def _refusal(source: str, split: str, class_names: Sequence[str], labels: NDArray[np.int64]) -> list[str]:
    """What to say of a split where a class has no image."""
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
    # Some file systems do not tell upper from lower case, or one spelling of an accented letter from the other.
    folded = [unicodedata.normalize("NFC", name.casefold()) for name in class_names]
    for number, name in enumerate(folded):
        if name in folded[:number]:
            raise UserError(f"class {class_names[number]!r}: another class folder has this name; export as npz")


def _write_split(folder: Path, dataset: ImageDataset) -> float:
    """Write the images of one split; the largest change by rounding."""
    for name in dataset.class_names:
        (folder / name).mkdir(parents=True)
    names = _file_names(dataset)
    change = 0.0
    with ThreadPoolExecutor() as pool:
        for rows in dataset.blocks():
            images = dataset.images[rows]
            if images.dtype != np.uint8:
                rounded = np.rint(images * np.float32(255)).astype(np.uint8)
                change = max(change, float(np.abs(images - rounded / 255.0).max()))
                images = rounded
            paths = [folder / dataset.class_names[dataset.labels[row]] / names[row] for row in rows]
            for _ in pool.map(_write_png, paths, images):
                pass
    return change


def _file_names(dataset: ImageDataset) -> list[str]:
    """The source index of each image, or its place in the split where images of several sources share an index."""
    index = dataset.provenance["source_index"]
    if len(np.unique(index)) < len(index):
        index = np.arange(len(dataset))
    width = len(str(index.max(initial=0)))
    return [f"{number:0{width}d}.png" for number in index.tolist()]


def _write_png(path: Path, image: NDArray[np.uint8]) -> None:
    from PIL import Image

    Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(path)


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
        for line in _refusal("npz", split, dataset.class_names, dataset.labels)
    ]


def _write_array(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], blocks: Iterator[NDArray[Any]]
) -> None:
    """One array in numpy's format, block by block; np.savez would need all of it at once."""
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_2_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block).tobytes())


def _write_constructed(folder: Path, datasets: Mapping[str, ImageDataset], out: Path, *, pool: bool) -> list[str]:
    for split, dataset in datasets.items():
        target = folder if pool else folder / split
        target.mkdir(parents=True)
        _write_tensors(target, out.resolve().name, dataset)
    places = [str(out if pool else out / split) for split in datasets]
    notes = [
        "this layout keeps no class names and no provenance",
        f"the source 'constructed' reads one folder, path: {' or '.join(places)}, as one pool, which needs a share "
        "'test' to be drawn from it",
    ]
    if any(dataset.images.dtype == np.uint8 for dataset in datasets.values()):
        notes.append("images became float32, the grey levels divided by 255")
    for split, dataset in datasets.items():
        # The source knows the classes only from the largest label.
        counted = int(dataset.labels.max()) + 1
        notes += _refusal("constructed", split, dataset.class_names[:counted], dataset.labels)
        if counted < dataset.num_classes:
            notes.append(f"{split}: the source 'constructed' counts {counted} of the {dataset.num_classes} classes")
    return notes


def _write_tensors(folder: Path, name: str, dataset: ImageDataset) -> None:
    import torch

    # torch.save takes whole tensors; those of a mapped file need not all be in memory.
    buffer = folder / f".{name}.buffer"
    with buffer.open("xb") as file:
        # A mapped file without its bytes on disk would end the process where the disk is full.
        os.posix_fallocate(file.fileno(), 0, int(np.prod(dataset.images.shape)) * np.dtype(np.float32).itemsize)
    images = np.memmap(buffer, np.float32, "r+", shape=dataset.images.shape)
    blocks = list(dataset.blocks())
    for rows in blocks:
        images[rows[0] : rows[-1] + 1] = dataset.float_images(rows)
    _save([torch.from_numpy(images[rows[0] : rows[-1] + 1]) for rows in blocks], folder / f"{name}_ims")
    _save([torch.from_numpy(dataset.labels[rows]) for rows in blocks], folder / f"{name}_lab")
    del images
    buffer.unlink()


def _save(tensors: list[Tensor], path: Path) -> None:
    import torch

    try:
        with path.open("xb") as file:
            torch.save(tensors, file)
    except RuntimeError as error:
        # torch says at which line of its own code it failed; what the system said lies behind that.
        if isinstance(error.__context__, OSError | UserError):
            raise error.__context__ from None
        raise OSError(errno.EIO, f"torch could not write it: {' '.join(str(error).split())}", str(path)) from error
