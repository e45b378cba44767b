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
# Weights that forward passes never use: robustness stores the network twice, TRADES stores an extra group.
UNUSED = ("attacker.", "sub_block1.")
NORMALISER = {"normalizer.new_mean": "mean", "normalizer.new_std": "std"}
# (pattern, replacement): names in public code, and the names of the same layers in this package.
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

    `mean` and `std` (C values each) normalise pixels in [0, 1] as in the training of the weights. Without them the
    network uses those in the file, under the names of this package or of the library robustness; if the file has none,
    it does not normalise.

    Raises:
        UserError: the file does not exist or is not such a file; `mean` and `std` do not fit the images; or a weight is
            missing, has another shape, or has no place in the network.
    """
    network = create(architecture, num_classes=num_classes, image_shape=image_shape, width=width)
    weights = _rename_weights(read_state_dict(path), network)
    if mean is not None or std is not None:
        weights["mean"], weights["std"] = _make_normalisation(mean, std, image_shape[0])
    for name, tensor in network.state_dict().items():
        # torch before 0.4.1 did not save these counters, and eval mode does not use them.
        if name in ("mean", "std") or name.endswith(".num_batches_tracked"):
            weights.setdefault(name, tensor)
    load_weights(network, weights, path=path, architecture=architecture)
    return network.eval()


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """The tensors by name in a torch file; only tensors and plain containers are unpickled.

    Raises:
        UserError: the file does not exist, is not a torch file, has other objects, or has no `state_dict`.
    """
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    # torch does not document the errors for damaged or foreign files; they depend on the bytes.
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


def _rename_weights(weights: Mapping[str, Tensor], network: Network) -> dict[str, Tensor]:
    own = {_replace_synonyms(name): name for name in network.state_dict()}
    renamed: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        plain = _strip_wrappers(name)
        if plain.startswith(UNUSED):
            continue
        if plain in NORMALISER:
            renamed[NORMALISER[plain]] = tensor.reshape(1, -1, 1, 1)
            continue
        ours = own.get(_replace_synonyms(plain), name)
        # A second weight with the same new name keeps its old name, so `load_weights` refuses it.
        renamed[name if ours in renamed else ours] = tensor
    return renamed


def _strip_wrappers(name: str) -> str:
    while name.startswith(WRAPPERS):
        name = name.partition(".")[2]
    return name


def _replace_synonyms(name: str) -> str:
    for pattern, replacement in SYNONYMS:
        name = pattern.sub(replacement, name)
    return name


def _make_normalisation(
    mean: Sequence[float] | None, std: Sequence[float] | None, channels: int
) -> tuple[Tensor, Tensor]:
    if mean is None or std is None:
        raise UserError("mean, std: give both, or neither")
    for field, values in (("mean", mean), ("std", std)):
        if len(values) != channels:
            raise UserError(f"{field}: {len(values)} values for images of {channels} channels")
    if min(std) <= 0:
        raise UserError(f"std: {min(std)} is not above 0")
    return torch.tensor(mean).view(1, -1, 1, 1), torch.tensor(std).view(1, -1, 1, 1)
