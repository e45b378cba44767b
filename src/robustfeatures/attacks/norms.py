"""The norms of attacks by name; each norm is a module of this package."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast, get_args

from robustfeatures.attacks.settings import NormName

if TYPE_CHECKING:
    import torch
    from torch import Tensor

NORMS: tuple[str, ...] = get_args(NormName)
# Below this length a gradient has no direction. Lengths are clamped to it, so that a zero gradient stays zero.
TINY = 1e-20


class Ball(Protocol):
    """The functions that gradient ascent uses: images are (N, C, H, W), `step_size` and `eps` () or (N, 1, 1, 1).

    Autograd does not follow these functions.
    """

    def step(self, images: Tensor, gradient: Tensor, step_size: Tensor) -> Tensor:
        """Move the images by `step_size` in the direction that raises the loss most, (N, C, H, W)."""
        ...

    def project(self, images: Tensor, origin: Tensor, eps: Tensor) -> Tensor:
        """Return the nearest images in the ball of radius `eps` round `origin`, (N, C, H, W)."""
        ...


class Norm(Ball, Protocol):
    """The functions of a norm that an attack uses."""

    def random_start(self, images: Tensor, eps: float, generator: torch.Generator | None) -> Tensor:
        """Draw a perturbation uniformly from the ball, in the shape of `images`, on the device of the generator."""
        ...


def load_norm(name: str) -> Norm:
    """Import the norm of this name.

    Raises:
        ValueError: there is no such norm.
    """
    if name not in NORMS:
        raise ValueError(f"norm: {name!r} is none of {', '.join(NORMS)}")
    # Imported by name, so that the identity of a result holds only the code of its own norm.
    return cast("Norm", import_module(f"robustfeatures.attacks.{name}"))
