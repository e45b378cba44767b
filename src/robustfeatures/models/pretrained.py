"""A network trained elsewhere, as the settings `Pretrained` describe it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from robustfeatures.errors import UserError
from robustfeatures.files import hash_file
from robustfeatures.models.foreign import load_foreign

if TYPE_CHECKING:
    from robustfeatures.models.network import Network
    from robustfeatures.models.settings import Pretrained


def load_pretrained(parameters: Pretrained, *, num_classes: int, image_shape: tuple[int, int, int]) -> Network:
    """The network in eval mode on the CPU, for images of `image_shape` (C, H, W).

    Raises:
        UserError: the file is missing, has another SHA-256, or does not hold the weights of this network.
    """
    path = Path(parameters.weights)
    if not path.is_file():
        raise UserError(f"weights: {path} does not exist")
    found = hash_file(path)
    if found != parameters.sha256:
        raise UserError(
            f"sha256: {path} has the SHA-256 {found}, not {parameters.sha256}; is it truncated, or was it changed?"
        )
    return load_foreign(
        path,
        architecture=parameters.architecture,
        num_classes=num_classes,
        image_shape=image_shape,
        width=parameters.width,
        mean=parameters.mean,
        std=parameters.std,
        format=parameters.format,
    )
