"""Weights trained elsewhere: a torch `state_dict` for a registered architecture."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from robustfeatures.errors import UserError
from robustfeatures.models.creation import create
from robustfeatures.models.network import Network
from robustfeatures.models.weights import load_weights

SUFFIXES = (".pt", ".pth", ".ckpt")
WRAPPERS = ("module.", "model.")
# What the networks never use: the library robustness stores the network twice, and TRADES a group outside its forward.
IDLE = ("attacker.", "sub_block1.")
NORMALISER = {"normalizer.new_mean": "mean", "normalizer.new_std": "std"}
# (pattern, replacement): how public code names what this package, too, has.
SYNONYMS = (
    (re.compile(r"^features\."), ""),
    (re.compile(r"^(linear|fc|classifier)\."), "head."),
    (re.compile(r"\.(downsample|convShortcut)\."), ".shortcut."),
    (re.compile(r"^block(\d+)\.layer\."), r"layer\1."),
)


def load_foreign(
    path: Path,
    *,
    architecture: str,
    num_classes: int,
    image_shape: tuple[int, int, int],
    width: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Network:
    """The network `architecture` with the weights of the torch file at `path`, in eval mode on the CPU.

    The file holds a `state_dict`, bare or under "state_dict", "model" or "net"; nothing else is unpickled. Weights may
    have this package's names, those of the common CIFAR ResNets (`layer1.0.shortcut.0`, `linear`), of torchvision's
    ResNets (`downsample`, `fc`) or of TRADES's WRN (`block1.layer.0.convShortcut`), behind "module." or "model.".

    `mean` and `std` are those of the images the weights were trained on, per channel and for pixels in [0, 1]; without
    them, the file's own count (those of this package or of the library robustness), and where it has none, images go
    in as they are.

    Raises:
        UserError: the file is missing or is no such file; `mean` and `std` do not fit the images; a weight is missing,
            has another shape, or is left over.
    """
    network = create(architecture, num_classes=num_classes, image_shape=image_shape, width=width)
    weights = _own_names(read_state_dict(path), network)
    if mean is not None or std is not None:
        weights["mean"], weights["std"] = _normalisation(mean, std, image_shape[0])
    for name, tensor in network.state_dict().items():
        # Torch before 0.4.1 kept no such counters, and no network in eval mode reads them.
        if name in ("mean", "std") or name.endswith(".num_batches_tracked"):
            weights.setdefault(name, tensor)
    load_weights(network, weights, path=path, architecture=architecture)
    return network.eval()


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """The tensors by name in a torch file, without unpickling anything but tensors and plain containers.

    Raises:
        UserError: the file is missing, is no torch file, holds other objects, or holds no `state_dict`.
    """
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    # Which error a damaged or foreign file raises depends on its bytes, and torch promises none.
    except Exception:
        raise UserError(
            f"{path}: not a torch file of tensors alone; save the state_dict of the network with torch.save"
        ) from None
    for key in ("state_dict", "model", "net"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if not isinstance(content, Mapping) or not content or not all(isinstance(t, Tensor) for t in content.values()):
        raise UserError(f"{path}: holds no state_dict, neither bare nor under 'state_dict', 'model' or 'net'")
    return {str(name): tensor for name, tensor in content.items()}


def _own_names(weights: Mapping[str, Tensor], network: Network) -> dict[str, Tensor]:
    own = {_common(name): name for name in network.state_dict()}
    renamed: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        plain = _unwrapped(name)
        if plain.startswith(IDLE):
            continue
        if plain in NORMALISER:
            renamed[NORMALISER[plain]] = tensor.reshape(1, -1, 1, 1)
            continue
        ours = own.get(_common(plain), name)
        # A second weight for the same place keeps its name and is refused as left over.
        renamed[name if ours in renamed else ours] = tensor
    return renamed


def _unwrapped(name: str) -> str:
    while name.startswith(WRAPPERS):
        name = name.partition(".")[2]
    return name


def _common(name: str) -> str:
    for pattern, replacement in SYNONYMS:
        name = pattern.sub(replacement, name)
    return name


def _normalisation(mean: Sequence[float] | None, std: Sequence[float] | None, channels: int) -> tuple[Tensor, Tensor]:
    if mean is None or std is None:
        raise UserError("mean, std: give both, or neither")
    for field, values in (("mean", mean), ("std", std)):
        if len(values) != channels:
            raise UserError(f"{field}: {len(values)} values for images of {channels} channels")
    if min(std) <= 0:
        raise UserError(f"std: {min(std)} is not above 0")
    return torch.tensor(mean).view(1, -1, 1, 1), torch.tensor(std).view(1, -1, 1, 1)
