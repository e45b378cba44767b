"""The names of the networks and the factories behind them; torch is imported only when a network is made."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from robustfeatures.errors import UserError, suggestion

if TYPE_CHECKING:
    from robustfeatures.models.network import Network

ARCHITECTURES = {
    "small-cnn": "robustfeatures.models.small_cnn:small_cnn",
}


def architecture_module(architecture: str) -> str:
    """The module in which an architecture is written.

    Raises:
        UserError: no architecture has that name.
    """
    if architecture not in ARCHITECTURES:
        raise UserError(f"architecture: {architecture!r} is unknown{suggestion(architecture, ARCHITECTURES)}")
    return ARCHITECTURES[architecture].partition(":")[0]


def create(
    architecture: str, *, num_classes: int, image_shape: tuple[int, int, int], width: int | None = None
) -> Network:
    """A freshly initialised network for images of `image_shape` (C, H, W) in [0, 1].

    It has `representation(images)` and normalises inside; `width` is the number of filters of its first stage.

    Raises:
        UserError: no architecture has that name.
    """
    module = import_module(architecture_module(architecture))
    factory = getattr(module, ARCHITECTURES[architecture].partition(":")[2])
    options = {} if width is None else {"width": width}
    network: Network = factory(num_classes=num_classes, image_shape=image_shape, **options)
    return network
