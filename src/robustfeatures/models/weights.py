"""Weights put into a network by name, or refused in one line that names the first which does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from robustfeatures.errors import UserError
from robustfeatures.models.network import Network


def load_weights(network: Network, weights: Mapping[str, Tensor], *, path: Path, architecture: str) -> None:
    """Copy `weights`, which must be all of the network's own and no others, into it; `path` is where they come from.

    Raises:
        UserError: a weight is missing, has another shape, or has no place in the network.
    """

    def refusal(name: str, what: str) -> UserError:
        return UserError(f"{path} is no checkpoint of {architecture!r}: weight {_short(name)!r} {what}")

    own = network.state_dict()
    for name, tensor in own.items():
        if name not in weights:
            raise refusal(name, "is missing")
        if weights[name].shape != tensor.shape:
            raise refusal(name, f"has shape {tuple(weights[name].shape)}, not {tuple(tensor.shape)}")
    for name in weights:
        if name not in own:
            raise refusal(name, "has no place in it")
    network.load_state_dict(dict(weights))


def _short(name: str) -> str:
    short = name.removeprefix("features.")
    # A bare number would not tell that it is one of the features.
    return name if short[:1].isdigit() else short
