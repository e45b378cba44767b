"""The norms of attacks, by name: each is a module of this package."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast, get_args

from robustfeatures.attacks.settings import NormName

if TYPE_CHECKING:
    import torch
    from torch import Tensor

NORMS: tuple[str, ...] = get_args(NormName)
# A gradient shorter than this has no direction. As a floor under a length it keeps a zero gradient zero.
TINY = 1e-12


class Ball(Protocol):
    """What gradient ascent needs of a norm; images are (N, C, H, W), lengths () or (N, 1, 1, 1).

    Gradients do not pass through.
    """

    def step(self, images: Tensor, gradient: Tensor, step_size: Tensor) -> Tensor:
        """The images after the move of length `step_size` that raises the loss most, (N, C, H, W)."""
        ...

    def project(self, images: Tensor, origin: Tensor, eps: Tensor) -> Tensor:
        """The images of the ball of radius `eps` round `origin` that are nearest to `images`, (N, C, H, W)."""
        ...


class Norm(Ball, Protocol):
    """A norm of images."""

    def random_start(self, images: Tensor, eps: float, generator: torch.Generator | None) -> Tensor:
        """A perturbation drawn uniformly from the ball, shaped like `images`."""
        ...


def norm_named(name: str) -> Norm:
    """The norm of a name.

    Raises:
        ValueError: there is no such norm.
    """
    if name not in NORMS:
        raise ValueError(f"norm: {name!r} is none of {', '.join(NORMS)}")
    # By name, so that a result depends on the code of its own norm alone.
    return cast("Norm", import_module(f"robustfeatures.attacks.{name}"))
