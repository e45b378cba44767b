"""Networks on disk: safetensors with what is needed to build the network again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import safe_open
from safetensors.torch import save

from robustfeatures.models.creation import create

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
    """Save weights, buffers and the arguments of `create`; equal networks give equal bytes."""
    description = json.dumps(
        {"architecture": architecture, "width": width, "class_names": class_names, "image_shape": image_shape},
        sort_keys=True,
    )
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    path.write_bytes(save(tensors, metadata={"network": description}))


def load_network(path: Path, device: torch.device | str = "cpu") -> Network:
    """The network saved at `path`, in eval mode."""
    with safe_open(path, framework="pt", device=str(device)) as file:
        description = json.loads(file.metadata()["network"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    network = create(
        description["architecture"],
        num_classes=len(description["class_names"]),
        image_shape=tuple(description["image_shape"]),
        width=description["width"],
    )
    network.load_state_dict(tensors)
    return network.to(device).eval()
