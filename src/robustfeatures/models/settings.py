"""The settings of a network, and of a network trained elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import MinLen

from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Strict

Format = Literal["auto", "state-dict", "robustness", "safetensors"]


@dataclass(frozen=True, kw_only=True)
class Architecture(Strict):
    """A network by name, and its width."""

    name: str
    """A registered network such as `resnet18`, `FILE.py:FUNCTION` beside the study, or `timm:NAME`."""
    width: PositiveInt | None = None
    """The number of filters of the first stage, or of hidden units; by default that of the network."""


@dataclass(frozen=True, kw_only=True)
class Pretrained(Strict):
    """A network trained elsewhere, whose weights are a file.

    The format "auto" is a safetensors file by its suffix, or else a torch file of a `state_dict`, as RobustBench, timm
    and most others write it; "robustness" is a checkpoint of the library robustness.
    """

    weights: str
    """The file of the weights."""
    sha256: str | None = None
    """The SHA-256 of the file; `robustfeatures fetch` prints it."""
    architecture: str
    """The network that has these weights, as in `architecture.name`."""
    width: PositiveInt | None = None
    """The width of the network, as in `architecture.width`."""
    format: Format = "auto"
    """How the weights are stored; `auto` looks at the suffix."""
    mean: Annotated[tuple[float, ...], MinLen(1)] | None = None
    """What is subtracted from pixels in [0, 1], one number per channel; by default that of the file."""
    std: Annotated[tuple[PositiveFloat, ...], MinLen(1)] | None = None
    """What pixels are then divided by, one number per channel; by default that of the file."""
