"""Artifacts as Python objects, from a reference or from a path inside a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.data.dataset import ImageDataset, read_dataset
from robustfeatures.errors import UserError
from robustfeatures.store.references import read_reference
from robustfeatures.store.store import Store

if TYPE_CHECKING:
    from robustfeatures.models.network import Network

DEFAULT_STORE = "store"


def _payload(path: Path, name: str, store: str | Path | None) -> Path:
    if path.suffix != ".json":
        payload = path if path.suffix == Path(name).suffix else path / name
        if not payload.exists():
            raise UserError(f"{payload}: there is no such file")
        return payload
    reference = read_reference(path)
    # results/artifacts/<stage>/<label>-<digest>.json lies beside results/store unless config.yaml says otherwise.
    root = Path(store) if store is not None else path.resolve().parents[2] / DEFAULT_STORE
    payload = Store(root).payload(reference["key"]) / name
    if not payload.exists():
        raise UserError(f"{path}: its payload {payload} is not there; give store= or run snakemake again")
    return payload


def open_dataset(
    reference_or_path: str | Path, split: str = "train", *, store: str | Path | None = None
) -> ImageDataset:
    """One split of an original or a derived data set: images, labels and provenance as arrays; `.to_torch()` wraps it.

    `reference_or_path` is a reference (`results/artifacts/derived/...json`), a payload folder or a `data.zarr`.
    `store` is only needed where a reference's store is not `store` beside its `artifacts` folder.

    Raises:
        UserError: there is no such reference, payload or split.
    """
    return read_dataset(_payload(Path(reference_or_path), "data.zarr", store), split)


def load_model(reference_or_path: str | Path, *, store: str | Path | None = None, device: str = "cpu") -> Network:
    """A trained network in eval mode, from a reference, a payload folder or a `model.safetensors`.

    Raises:
        UserError: there is no such reference or payload.
    """
    from robustfeatures.models.saving import load_network

    return load_network(_payload(Path(reference_or_path), "model.safetensors", store), device)
