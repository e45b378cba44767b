"""Networks by name; torch is imported only when one is made."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING

from robustfeatures.errors import UserError
from robustfeatures.models.registry import factory_name

if TYPE_CHECKING:
    from robustfeatures.models.network import Network


def create(
    architecture: str, *, num_classes: int, image_shape: tuple[int, int, int], width: int | None = None
) -> Network:
    """A freshly initialised network for images of `image_shape` (C, H, W) in [0, 1].

    It has `representation(images)` and normalises inside; `width` is the number of filters of its first stage, or of
    hidden units where it has none (without it, as published).

    Raises:
        UserError: no architecture has that name, or it has no width, or it does not take this width or these images.
    """
    module, _, function = factory_name(architecture).partition(":")
    factory = getattr(import_module(module), function)
    options = {} if width is None else {"width": width}
    if options and "width" not in signature(factory).parameters:
        raise UserError(f"architecture.width: {architecture!r} has no width")
    network: Network = factory(num_classes=num_classes, image_shape=image_shape, **options)
    return network
