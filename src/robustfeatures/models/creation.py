"""Create networks by name; torch is imported only when a network is created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robustfeatures.engine.registry import load_attribute
from robustfeatures.models.registry import NetworkFactory, find_network

if TYPE_CHECKING:
    from robustfeatures.models.network import Network


def create(
    architecture: str, *, num_classes: int, image_shape: tuple[int, int, int], width: int | None = None
) -> Network:
    """Create a newly initialised network for images of `image_shape` (C, H, W) in [0, 1].

    `width` is the number of filters of the first stage, or of hidden units in a network without convolutions; without
    `width`, as published.

    Raises:
        UserError: no architecture has this name; or it has no width, or does not accept this width or these images.
    """
    entry = find_network(architecture, "architecture")
    entry.check_width(width)
    entry.check_images(image_shape)
    factory: NetworkFactory = load_attribute(entry.factory)
    options = {} if width is None else {"width": width}
    return factory(num_classes=num_classes, image_shape=image_shape, **options)
