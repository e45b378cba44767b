"""Networks on disk: safetensors files with the arguments that build the network again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from robustfeatures.errors import UserError
from robustfeatures.models.creation import create
from robustfeatures.models.weights import load_weights

if TYPE_CHECKING:
    from robustfeatures.models.network import Network


def save_network(
    network: Network,
    path: Path,
    *,
    architecture: str,
    width: int | None,
    class_names: tuple[str, ...],
    image_shape: tuple[int, int, int],
) -> None:
    """Save weights, buffers and the arguments of `create`. Equal networks give equal bytes."""
    description = json.dumps(
        {"architecture": architecture, "width": width, "class_names": class_names, "image_shape": image_shape},
        sort_keys=True,
    )
    # A file has no shared memory, so weights that layers share are in it once for each.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in network.state_dict().items()}
    path.write_bytes(save(tensors, metadata={"network": description}))


def load_network(path: Path, device: torch.device | str = "cpu") -> Network:
    """The network saved at `path`, in eval mode.

    Raises:
        UserError: the file was not saved by `save_network`, or its weights are not those of the network it names.
    """
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise UserError(f"{path}: not a whole safetensors file ({error})") from None
    try:
        description = json.loads(metadata["network"])
        architecture = str(description["architecture"])
        num_classes = len(description["class_names"])
        channels, height, width = (int(side) for side in description["image_shape"])
        filters = None if description["width"] is None else int(description["width"])
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: does not say which network its weights are of, as files of this package do") from None
    try:
        network = create(architecture, num_classes=num_classes, image_shape=(channels, height, width), width=filters)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    load_weights(network, tensors, path=path, architecture=architecture)
    return network.to(device).eval()
