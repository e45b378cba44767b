"""Data sets as parquet files with a dataset card, which `datasets.load_dataset` reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.errors import UserError
from robustfeatures.tools.dataset_card import write_card


def write_huggingface(
    folder: Path, datasets: Mapping[str, ImageDataset], source: Path, store: str | Path | None
) -> list[str]:
    """Write `folder/data/<split>-*.parquet` and `folder/README.md`; returns lines on what was lost.

    `source` is the reference or the path that is exported, from which the card tells how it was made.

    Raises:
        UserError: pyarrow is not installed.
    """
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise UserError("--format huggingface: needs `pip install 'robustfeatures[huggingface]'`") from error
    (folder / "data").mkdir(parents=True)
    change = 0.0
    sizes = {}
    for split, dataset in datasets.items():
        path = folder / "data" / f"{split}-00000-of-00001.parquet"
        schema = _schema(dataset)
        with parquet.ParquetWriter(path, schema) as writer:
            for columns, rounding in _blocks(dataset):
                change = max(change, rounding)
                writer.write_table(_table(columns, schema))
        sizes[split] = (len(dataset), path.stat().st_size)
    notes = []
    if any(dataset.images.dtype != np.uint8 for dataset in datasets.values()):
        notes = [f"images were rounded to 8 bits; the largest change of a pixel is {change:.6f} of 1"]
    write_card(folder / "README.md", next(iter(datasets.values())), sizes, source, store, notes)
    return notes


def round_to_bytes(images: NDArray[Any]) -> tuple[NDArray[np.uint8], float]:
    """The images as grey levels from 0 to 255, and the largest change of a pixel of 1."""
    if images.dtype == np.uint8:
        return images, 0.0
    rounded = np.rint(images * np.float32(255)).astype(np.uint8)
    return rounded, float(np.abs(images - rounded / 255.0).max())


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """One image (C, H, W), with one or three channels, as a PNG file."""
    from PIL import Image

    file = BytesIO()
    Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(file, "PNG")
    return file.getvalue()


def _blocks(dataset: ImageDataset) -> Iterator[tuple[dict[str, Any], float]]:
    """The columns of some rows at a time, and the largest change of a pixel by rounding."""
    with ThreadPoolExecutor() as pool:
        for rows in dataset.blocks():
            images, change = round_to_bytes(dataset.images[rows])
            columns: dict[str, Any] = {
                "image": [{"bytes": image, "path": None} for image in pool.map(encode_png, images)],
                "label": dataset.labels[rows],
                **{name: values[rows] for name, values in dataset.provenance.items()},
            }
            yield columns, change


def _schema(dataset: ImageDataset) -> Any:
    """The types of the columns; what `datasets` needs beside them is in the metadata."""
    import pyarrow

    fields = [
        ("image", pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])),
        ("label", pyarrow.int64()),
        *((name, pyarrow.int64()) for name in dataset.provenance),
    ]
    features = {
        "image": {"_type": "Image"},
        "label": {"names": list(dataset.class_names), "_type": "ClassLabel"},
        **{name: {"dtype": "int64", "_type": "Value"} for name in dataset.provenance},
    }
    return pyarrow.schema(fields, metadata={"huggingface": json.dumps({"info": {"features": features}})})


def _table(columns: Mapping[str, Any], schema: Any) -> Any:
    import pyarrow

    return pyarrow.table(
        {name: pyarrow.array(values, schema.field(name).type) for name, values in columns.items()}, schema
    )
