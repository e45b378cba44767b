"""Open artifacts as Python objects, from a reference or from a path inside a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.errors import UserError
from robustfeatures.pipeline.store.datasets import read_dataset
from robustfeatures.pipeline.store.references import read_reference
from robustfeatures.pipeline.store.store import Store

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset
    from robustfeatures.models.network import Network
    from robustfeatures.models.settings import Format

DEFAULT_STORE = "store"


def payload_file(path: Path, name: str, store: str | Path | None, *, verified: bool = False) -> Path:
    """The file or folder `name` of a payload, from a reference, the payload's folder or the path itself.

    With `verified` the file of a reference is hashed first. A path alone has no SHA-256 to compare with.

    Raises:
        UserError: there is no such reference or payload, or it is damaged.
    """
    if path.suffix != ".json":
        payload = path if path.suffix == Path(name).suffix else path / name
        if not payload.exists():
            raise UserError(f"{payload}: there is no such file")
        return payload
    reference = read_reference(path)
    # By default results/store is beside results/artifacts/<stage>/<label>-<digest>.json.
    root = Path(store) if store is not None else path.resolve().parents[2] / DEFAULT_STORE
    payload = Store(root).payload(reference["key"])
    if not payload.exists():
        raise UserError(f"{path}: its payload {payload} is not there; give store= or run snakemake again")
    if verified:
        Store(root).verified(reference["key"], reference["content"], [name])
    if not (payload / name).exists():
        stage = path.parent.name
        raise UserError(f"{path}: its payload {payload} holds no {name}; an artifact of the stage {stage} has none")
    return payload / name


def open_dataset(
    reference_or_path: str | Path, split: str = "train", *, store: str | Path | None = None, in_memory: bool = True
) -> ImageDataset:
    """One split of an original or a derived data set: images, labels and provenance as arrays; `.to_torch()` wraps it.

    `reference_or_path` is a reference (`results/artifacts/derived/...json`), a payload folder or a `data.zarr`.
    `store` is only needed if a reference's store is not the folder `store` beside its `artifacts` folder. Without
    `in_memory`, `.images` reads the rows it is indexed with from disk, for sets larger than memory.

    Raises:
        UserError: there is no such reference, payload or split.
    """
    path = payload_file(Path(reference_or_path), "data.zarr", store)
    return read_dataset(path, split, in_memory=in_memory)


def load_model(
    reference_or_path: str | Path,
    *,
    store: str | Path | None = None,
    device: str = "cpu",
    architecture: str | None = None,
    num_classes: int | None = None,
    image_shape: tuple[int, int, int] | None = None,
    width: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    format: Format = "auto",
) -> Network:
    """A trained network in eval mode, from a reference, a payload folder, a `model.safetensors` or a torch file.

    Weights trained elsewhere, in a torch file (.pt, .pth, .ckpt, .bin, .tar) or a safetensors file, need
    `architecture`, `num_classes`, `image_shape` (C, H, W) and, if they are not the default ones, `width`, `mean`, `std`
    and `format`; see `robustfeatures.models.foreign.load_foreign`. The architecture is a registered name,
    `<path>.py:<function>` for a function of your own, or `timm:<name>`. The files of this package say what network they
    hold; only for one of your own give `architecture`, because loading it runs your file.

    Raises:
        UserError: there is no such reference, payload or device, the file is damaged, or it holds the weights of
            another network.
    """
    path = Path(reference_or_path)
    _check_device(device)
    from robustfeatures.models.foreign import SUFFIXES, load_foreign
    from robustfeatures.models.own_files import check_own, parse_own
    from robustfeatures.pipeline.store.networks import load_network

    own = None if architecture is None else parse_own(architecture)
    if own is not None:
        check_own(own._replace(file=Path(own.file).name), Path(own.file).parent, "architecture")
        architecture = f"{Path(own.file).name}:{own.function}"
    rest = (num_classes, image_shape, width, mean, std)
    foreign = path.suffix in SUFFIXES or (path.suffix == ".safetensors" and num_classes is not None)
    if not foreign:
        if any(value is not None for value in (None if own else architecture, *rest)):
            raise UserError(f"{path}: says itself which network it holds; architecture= is for {', '.join(SUFFIXES)}")
        return load_network(payload_file(path, "model.safetensors", store), device)
    if architecture is None or num_classes is None or image_shape is None:
        raise UserError(f"{path}: say which network its weights are of: give architecture=, num_classes=, image_shape=")
    network = load_foreign(
        path,
        architecture=architecture,
        num_classes=num_classes,
        image_shape=image_shape,
        width=width,
        mean=mean,
        std=std,
        format=format,
    )
    return network.to(device)


def _check_device(device: str) -> None:
    import torch

    try:
        torch.empty(1, device=device)
    # torch says that it was built without CUDA by an AssertionError.
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"load_model: device: {str(device)!r} cannot be used here: {reason}") from error
