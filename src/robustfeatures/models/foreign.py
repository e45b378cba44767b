"""Weights trained elsewhere: a torch or safetensors file of named tensors for an architecture."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from robustfeatures.errors import UserError
from robustfeatures.models.creation import create
from robustfeatures.models.network import Network
from robustfeatures.models.own import OwnNetwork
from robustfeatures.models.weights import load_weights

if TYPE_CHECKING:
    from robustfeatures.models.settings import Format

SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".tar")
WRAPPERS = ("module.", "model.")
# More kinds of foreign objects than this in one file are refused.
MOST_KINDS = 100
# Weights that forward passes never use: robustness stores the network twice, TRADES stores an extra group.
UNUSED = ("attacker.", "sub_block1.")
# The names of the normalisation in robustness and, below, in RobustBench.
NORMALISER = {
    "normalizer.new_mean": "mean",
    "normalizer.new_std": "std",
    "normalize.mean": "mean",
    "normalize.std": "std",
    "mu": "mean",
    "sigma": "std",
}
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
    format: Format = "auto",
) -> Network:
    """The network `architecture` with the weights of the file at `path`, in eval mode on the CPU.

    The file holds a `state_dict`, bare or under "state_dict", "model" or "net"; no other object is made from it. The
    weights of a network of the user's own, or of timm, have the names that its module gives them. Others may have
    this package's names, those of the common CIFAR ResNets (`layer1.0.shortcut.0`, `linear`), of torchvision's
    ResNets (`downsample`, `fc`) or of TRADES's WRN (`block1.layer.0.convShortcut`), behind "module." or "model.".

    `format` is as in `models.settings.Pretrained`. `mean` and `std` (C values each) normalise pixels in [0, 1] as in
    the training of the weights. Without them the network uses those in the file, under the names of this package, of
    robustness or of RobustBench; if the file has none, it does not normalise.

    Raises:
        UserError: the file does not exist or is not such a file; `mean` and `std` do not fit the images; a weight is
            missing, has another shape, or has no place in the network; or the network gives NaN.
    """
    network = create(architecture, num_classes=num_classes, image_shape=image_shape, width=width)
    weights = _rename_weights(read_tensors(path, format), network)
    if mean is not None or std is not None:
        weights["mean"], weights["std"] = _make_normalisation(mean, std, image_shape[0])
    for name, tensor in network.state_dict().items():
        # torch before 0.4.1 did not save these counters, and eval mode does not use them.
        if name in ("mean", "std") or name.endswith(".num_batches_tracked"):
            weights.setdefault(name, tensor)
    load_weights(network, weights, path=path, architecture=architecture)
    network.eval()
    with torch.no_grad():
        logits = network(torch.full((1, *image_shape), 0.5))
    if not logits.isfinite().all():
        raise UserError(f"{path}: the network with these weights gives NaN or infinite logits")
    return network


def read_tensors(path: Path, format: Format) -> dict[str, Tensor]:
    """The tensors by name in a file of that format, without running code that it may hold.

    Raises:
        UserError: the file does not exist, is not of this format, has other objects, or has no `state_dict`.
    """
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    if format == "safetensors" or (format == "auto" and path.suffix == ".safetensors"):
        try:
            return load_file(path)
        except SafetensorError as error:
            raise UserError(f"{path}: not a whole safetensors file ({error})") from None
    return _find_state_dict(_read_robustness(path) if format == "robustness" else _read_torch(path), path)


def _read_torch(path: Path) -> Any:
    """What a torch file of tensors and plain containers holds."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    # torch does not document the errors for damaged or foreign files; they depend on the bytes.
    except Exception as error:
        kind = _refused_kind(error)
        held = "" if kind is None else f": it holds {kind}, which is refused, because it could run code"
        remedy = "save the state_dict of the network with torch.save"
        remedy += "" if kind is None else ", or give format='robustness', which skips such objects"
        raise UserError(f"{path}: not a torch file of tensors alone{held}; {remedy}") from None


class _Skipped:
    """Stands for an object that is not read: it takes any arguments and runs nothing."""

    def __new__(cls, *arguments: object) -> _Skipped:
        return super().__new__(cls)

    def __init__(self, *arguments: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


def _read_robustness(path: Path) -> Any:
    """What a checkpoint of robustness holds; what is neither tensor nor container is skipped, and none of it is run.

    Beside the network such files hold the state of the training, written by dill.
    """
    skipped: list[tuple[type[_Skipped], str]] = []
    for _ in range(MOST_KINDS):
        try:
            # torch's own reader, which makes only what is listed: here `_Skipped` under each foreign name.
            with torch.serialization.safe_globals(skipped):  # type: ignore[arg-type]  # torch's type lacks pairs
                return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            kind = _refused_kind(error)
            if kind is None or any(kind == name for _, name in skipped):
                break
            skipped.append((type("_Skipped", (_Skipped,), {}), kind))
    return _read_torch(path)


def _refused_kind(error: Exception) -> str | None:
    """The name of the object that torch refused to make."""
    found = re.search(r"GLOBAL ([\w.]+)", str(error))
    return None if found is None else found[1]


def _find_state_dict(content: Any, path: Path) -> dict[str, Tensor]:
    for key in ("state_dict", "model", "net"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if not isinstance(content, Mapping) or not content or not all(isinstance(t, Tensor) for t in content.values()):
        raise UserError(f"{path}: holds no state_dict, neither bare nor under 'state_dict', 'model' or 'net'")
    return {str(name): tensor for name, tensor in content.items()}


def _rename_weights(weights: Mapping[str, Tensor], network: Network) -> dict[str, Tensor]:
    raw = network.original_names if isinstance(network, OwnNetwork) else {}
    own = {_replace_synonyms(name): name for name in network.state_dict()}
    renamed: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        plain = _strip_wrappers(name)
        exact = next((raw[one] for one in (name, plain) if one in raw), None)
        if exact is not None:
            renamed[exact] = tensor
            continue
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
