"""Load weights into a network by name; the first one that does not fit is named in the error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from robustfeatures.errors import UserError
from robustfeatures.models.network import Network


def load_weights(network: Network, weights: Mapping[str, Tensor], *, path: Path, architecture: str) -> None:
    """Copy `weights` into the network. They must be exactly the network's own; `path` is their file.

    Raises:
        UserError: a weight is missing, is complex, sparse or quantised, has another shape, or has no place in the
            network.
    """

    def error(name: str, problem: str) -> UserError:
        return UserError(f"{path} is no checkpoint of {architecture!r}: weight {_shorten(name)!r} {problem}")

    own = network.state_dict()
    for name, tensor in own.items():
        if name not in weights:
            raise error(name, "is missing")
        if not _is_plain(weights[name]):
            raise error(name, "is no array of real numbers")
        if weights[name].shape != tensor.shape:
            raise error(name, f"has shape {tuple(weights[name].shape)}, not {tuple(tensor.shape)}")
    for name in weights:
        if name not in own:
            raise error(name, "has no place in it")
    network.load_state_dict(dict(weights))


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and not (tensor.is_complex() or tensor.is_quantized or tensor.is_meta)


def _shorten(name: str) -> str:
    short = name.removeprefix("features.")
    # A bare number would not say that the weight belongs to the features.
    return name if short[:1].isdigit() else short
